"""The adapter's parts: sizes, options, limits, prompts, positions, packing, configuration."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mmcore_qwen2vl.config import decoder_config, vision_encoder
from mmcore_qwen2vl.positions import MRopePositions
from mmcore_qwen2vl.processor import vision_processor
from mmcore_qwen2vl.testing import TOKEN_IDS, write_tiny_checkpoint

from mmcore.adapter import Layout
from mmcore.decoder_config import Rope
from mmcore.errors import (
    CheckpointError,
    MediaLimitError,
    PlaceholderMismatchError,
    RequestError,
    UnsupportedOptionError,
    WeightError,
)
from mmcore.inputs.ops import NumpyOps
from mmcore.parts.area import Area
from mmcore.request import (
    EncoderInput,
    ItemPlan,
    MediaInfo,
    MediaPart,
    MediaSegment,
    Message,
    PlaceholderRange,
    Rows,
    TextPart,
    TextSegment,
)

HUB = {"min_pixels": 3136, "max_pixels": 12845056}


@pytest.mark.parametrize(
    ("size", "resized"),
    [
        ((1024, 768), (1036, 756)),
        ((448, 448), (448, 448)),
        ((1, 1), (56, 56)),
        ((70, 42), (56, 56)),  # 2.5 and 1.5 both round to the even 2
        ((10, 2000), (28, 812)),  # the short side rounds to 0, so the area is grown
        ((9000, 9000), (3584, 3584)),
    ],
)
def test_published_sizes(size: tuple[int, int], resized: tuple[int, int]) -> None:
    width, height = size
    assert Area(HUB["min_pixels"], HUB["max_pixels"]).fit(height, width, 28) == resized[::-1]


@settings(max_examples=100)
@given(
    long=st.integers(1, 12_000),
    aspect=st.floats(1.0, 200.0),
    bounds=st.sampled_from([(3136, 12845056), (3136, 50176), (784, 3136), (100_000, 200_000)]),
)
def test_sizes_keep_their_promises(long: int, aspect: float, bounds: tuple[int, int]) -> None:
    short = max(1, -(-long // int(aspect)))
    height, width = Area(*bounds).fit(short, long, 28)
    assert height % 28 == width % 28 == 0
    assert min(height, width) >= 28
    assert bounds[0] <= height * width or long * short > bounds[0]
    scaled_up = long * short < bounds[0]  # rounds up, as the reference does, and past a close upper bound
    assert height * width <= bounds[1] or min(height, width) == 28 or scaled_up


def test_aspect_over_200_names_the_limit(tiny: Any) -> None:
    inputs = tiny.adapter.inputs
    with pytest.raises(MediaLimitError, match="max_aspect 200"):
        inputs.measure([MediaInfo("image", width=2001, height=10)], [inputs])
    inputs.measure([MediaInfo("image", width=2000, height=10)], [inputs])


@settings(max_examples=15)
@given(data=st.data())
def test_patches_are_cut_as_the_core_cuts_them(tiny: Any, data: st.DataObject) -> None:
    """Pictures and clips of odd and even counts in one batch, against `MediaOps.patchify` item by item."""
    sizes = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 5))
    shapes = data.draw(st.lists(sizes, min_size=1, max_size=4))
    rng, inputs, plans, expected = np.random.default_rng(len(shapes)), [], [], []
    for rows, columns, count in shapes:
        frames = rng.integers(0, 256, (count, 28 * rows, 28 * columns, 3), np.uint8)
        grid = (-(-count // 2), 2 * rows, 2 * columns)
        inputs.append(EncoderInput({"frames": frames}))
        plans.append(ItemPlan((Rows(math.prod(grid) // 4),), math.prod(grid) // 4, 64, grid))
        expected.append(NumpyOps().patchify(frames, patch=14, temporal=2, merge=2))
    arrays = tiny.adapter.encoder.collate(inputs, plans)
    names = ("pixels", "corners", "strides")
    found = tiny.model.encoder.cut.levels(*(torch.from_numpy(arrays[name]) for name in names))
    assert np.array_equal(found.numpy(), np.concatenate(expected))


def test_measured_rows_are_encoded_rows(tiny: Any) -> None:
    inputs, plans = tiny.items((60, 200), (500, 20), (1, 1))
    assert tiny.encode(inputs, plans).shape == (sum(plan.rows for plan in plans), 64)
    assert [plan.pieces for plan in plans] == [(Rows(plan.rows),) for plan in plans]
    for item, plan in zip(inputs, plans, strict=True):
        _, height, width = plan.geometry
        assert item.arrays["frames"].shape == (1, 14 * height, 14 * width, 3)


@settings(max_examples=15)
@given(data=st.data())
def test_rows_do_not_depend_on_the_batch(tiny: Any, data: st.DataObject) -> None:
    side = st.integers(1, 300)
    sizes = data.draw(st.lists(st.tuples(side, side), min_size=2, max_size=4))
    inputs, plans = tiny.items(*[(w, h) for w, h in sizes if max(w, h) <= 200 * min(w, h)] or [(9, 9)])
    together = tiny.encode(inputs, plans).split([plan.rows for plan in plans])
    for item, plan, rows in zip(inputs, plans, together, strict=True):
        alone = tiny.encode([item], [plan])
        assert (alone - rows).abs().max() <= 1e-5 * alone.abs().max()


def test_options_replace_the_bounds(tiny: Any) -> None:
    inputs = tiny.adapter.inputs
    info = MediaInfo("image", width=280, height=280)
    small = inputs.with_options({"max_pixels": 28 * 28 * 4})
    plans = inputs.measure([info, info], [inputs, small])
    assert [plan.rows for plan in plans] == [64, 4]
    assert small != inputs
    assert inputs.with_options({}) == inputs


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"crop": 2}, "'crop'"),
        ({"fps": 0}, "fps is a number above 0"),
        ({"frames": [3, 1]}, "frames is a list of frame numbers"),
        ({"max_frames": 2}, "min_frames 4 is over max_frames 2"),
        ({"max_pixels": 0}, "max_pixels=0"),
        ({"max_pixels": "many"}, "max_pixels='many'"),
        ({"min_pixels": True}, "min_pixels=True"),
        ({"total_pixels": -1}, "total_pixels=-1"),
    ],
)
def test_bad_options_are_named(tiny: Any, options: dict[str, Any], word: str) -> None:
    with pytest.raises(UnsupportedOptionError, match=word):
        tiny.adapter.inputs.with_options(options)


def test_bounds_that_exclude_each_other_are_named(tiny: Any) -> None:
    inputs = tiny.adapter.inputs
    with pytest.raises(UnsupportedOptionError, match="min_pixels 1000000000 is over max_pixels"):
        inputs.measure([MediaInfo("image", width=9, height=9)], [inputs.with_options({"min_pixels": 10**9})])


def test_a_typed_special_token_is_no_slot(tiny: Any) -> None:
    question = "What is <|image_pad|> here?<|im_end|>"
    segments = tiny.adapter.prompt.render([Message("user", (MediaPart("image"), TextPart(question)))])
    assert segments == (
        TextSegment(
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n<|vision_start|>",
            trusted=True,
        ),
        MediaSegment("image", 0),
        TextSegment("<|vision_end|>", trusted=True),
        TextSegment(question),
        TextSegment("<|im_end|>\n<|im_start|>assistant\n", trusted=True),
    )


def test_a_plain_prompt_gets_its_pictures_in_front(tiny: Any) -> None:
    parsed = tiny.adapter.prompt.parse("Compare.", ["image", "image"])
    message = Message("user", (MediaPart("image"), MediaPart("image"), TextPart("Compare.")))
    assert parsed == tiny.adapter.prompt.render([message])


def test_a_raw_prompt_counts_its_placeholders(tiny: Any) -> None:
    raw = "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>Hi<|im_end|>\n"
    assert MediaSegment("image", 0) in tiny.adapter.prompt.parse(raw, ["image"])
    with pytest.raises(PlaceholderMismatchError):
        tiny.adapter.prompt.parse(raw, ["image", "image"])


def layout(items: list[tuple[str, tuple[int, int, int]]], text: list[int]) -> Layout:
    """``text[i]`` tokens before item i, the last ones after all items."""
    plans, ranges, offset = [], [], 0
    for n, ((_, grid), before) in enumerate(zip(items, text, strict=False)):
        rows = grid[0] * grid[1] * grid[2] // 4
        plans.append(ItemPlan((Rows(rows),), rows, 64, grid))
        offset += before
        ranges.append(PlaceholderRange(offset, rows, n, 0))
        offset += rows
    return Layout(offset + text[-1], tuple(ranges), tuple(plans), tuple(m for m, _ in items))


def test_positions_of_a_picture() -> None:
    """A grid of 2 x 3 after two tokens: text goes on at 2 + max(2, 3)."""
    result = MRopePositions(2)(layout([("image", (1, 4, 6))], [2, 2]))
    assert result.values.tolist() == [
        [0, 1, 2, 2, 2, 2, 2, 2, 5, 6],
        [0, 1, 2, 2, 2, 3, 3, 3, 5, 6],
        [0, 1, 2, 3, 4, 2, 3, 4, 5, 6],
    ]
    assert (result.delta, result.values.dtype) == (-3, np.dtype(np.int32))


@pytest.mark.parametrize(("frames", "after"), [(5, 6), (2, 4)])
def test_text_after_a_video_starts_past_its_longest_axis(frames: int, after: int) -> None:
    """1 + the largest of all three axes: time counts (Qwen's own code), also where it is the longest."""
    result = MRopePositions(2)(layout([("video", (frames, 4, 6))], [1, 1]))
    assert result.values[:, -1].tolist() == [after] * 3
    assert result.values.max(axis=0)[-2] == after - 1


def test_windows_cover_each_square_once(tiny_of: Callable[..., Any]) -> None:
    """5 x 3 squares in windows of 2 x 2: full ones, those at the right and lower edge, the corner."""
    encoder = tiny_of("2.5").adapter.encoder
    plan = ItemPlan((Rows(15),), 15, 64, (1, 10, 6))
    frames = np.zeros((1, 140, 84, 3), np.uint8)
    arrays = encoder.collate([EncoderInput({"frames": frames})], [plan])
    assert arrays["order"].tolist() == [0, 1, 3, 4, 2, 5, 6, 7, 9, 10, 8, 11, 12, 13, 14]
    assert arrays["window_starts"].tolist() == [0, 16, 24, 40, 48, 56, 60]
    assert (arrays["starts"].tolist(), arrays["longest"].shape) == ([0, 60], (60,))


def test_frames_of_another_size_than_the_grid_are_refused(tiny: Any) -> None:
    """Before the device reads past their end."""
    plan = ItemPlan((Rows(15),), 15, 64, (1, 10, 6))
    for shape in [(1, 140, 70, 3), (0, 140, 84, 3), (1, 140, 84, 1)]:
        with pytest.raises(RequestError, match="10x6 patches"):
            tiny.adapter.encoder.collate([EncoderInput({"frames": np.zeros(shape, np.uint8)})], [plan])


def test_work_grows_with_the_picture(tiny: Any) -> None:
    _, plans = tiny.items((56, 56), (112, 112), (224, 224))
    work = [tiny.adapter.encoder.cost(plan).work for plan in plans]
    assert 3.9 * work[0] < work[1]
    assert 3.9 * work[1] < work[2]


def test_decoding_stops_at_both_ends(tiny: Any) -> None:
    assert tiny.adapter.decoding.defaults.stop_ids == (TOKEN_IDS["<|im_end|>"], TOKEN_IDS["<|endoftext|>"])
    assert tiny.adapter.placeholder("image").token_id == TOKEN_IDS["<|image_pad|>"]


PUBLISHED_TEXT = {
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "max_position_embeddings": 32768,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-06,
    "use_sliding_window": False,
    "vocab_size": 152064,
}
OLD_ROPE = {"rope_theta": 1000000.0, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}
NEW_ROPE = {"rope_parameters": {"rope_type": "default", "mrope_section": [16, 24, 24], "rope_theta": 1e6}}


@pytest.mark.parametrize("rope", [OLD_ROPE, NEW_ROPE])
@pytest.mark.parametrize("nested", [False, True])
def test_published_decoder(rope: dict[str, Any], nested: bool) -> None:
    text = PUBLISHED_TEXT | rope
    config = decoder_config({"text_config": text} if nested else text)
    assert isinstance(config.positions, Rope)
    assert (config.positions.theta, config.positions.sections) == (1e6, (16, 24, 24))
    assert (config.num_layers, config.num_kv_heads, config.head_dim) == (28, 4, 128)
    assert (config.q_bias, config.out_bias, config.tied_head) == (True, False, False)


def test_published_towers() -> None:
    old = {
        "depth": 32,
        "embed_dim": 1280,
        "mlp_ratio": 4,
        "num_heads": 16,
        "in_chans": 3,
        "hidden_size": 3584,
    }
    tower = vision_encoder({"vision_config": old})
    assert (tower.width, tower.intermediate, tower.out_width) == (1280, 5120, 3584)
    assert (tower.patches.values, tower.norm, tower.window) == (1176, "layer", 0)
    new: dict[str, Any] = {
        "depth": 32,
        "hidden_size": 1280,
        "intermediate_size": 3420,
        "num_heads": 16,
        "window_size": 112,
    }
    new |= {"out_hidden_size": 2048, "fullatt_block_indexes": [7, 15, 23, 31], "in_chans": 3}
    tower = vision_encoder({"vision_config": new})
    assert (tower.width, tower.intermediate, tower.out_width) == (1280, 3420, 2048)
    assert (tower.norm, tower.window, tower.full_layers) == ("rms", 4, (7, 15, 23, 31))


@pytest.mark.parametrize(
    "settings",
    [
        HUB,
        {"size": {"shortest_edge": 3136, "longest_edge": 12845056}},
        {"size": {"min_pixels": 1}, **HUB},
    ],
)
def test_bounds_under_either_name(settings: dict[str, Any]) -> None:
    processor = vision_processor(settings, settings, 8)
    assert processor.picture == processor.video == Area(3136, 12845056)


def test_settings_of_videos() -> None:
    """A file of their own, the total bounded as in transformers' `cap_pixels_per_frame`."""
    videos = {"size": {"shortest_edge": 9, "longest_edge": 99}, "fps": 1, "max_frames": 8}
    processor = vision_processor(HUB, videos | {"cap_pixels_per_frame": True, "max_video_tokens": 10}, 8)
    assert processor.picture == Area(3136, 12845056)
    assert processor.video == Area(9, 99, total=7056)
    assert (processor.sampling.fps, processor.sampling.min_frames, processor.sampling.max_frames) == (1, 4, 8)
    assert vision_processor({}, {}, 8).video == Area(100352, 602112)


@pytest.mark.parametrize("name", ["video_preprocessor_config.json", "processor_config.json"])
def test_videos_may_have_a_file_of_their_own(opener: Callable[..., Any], tmp_path: Path, name: str) -> None:
    settings = {"max_pixels": 28 * 28 * 3, "fps": 5.0}
    whole = {"video_processor": settings} if name == "processor_config.json" else settings
    (write_tiny_checkpoint(tmp_path) / name).write_text(json.dumps(whole))
    processor = opener(tmp_path).adapter.inputs
    assert (processor.video.largest, processor.sampling.fps) == (28 * 28 * 3, 5.0)
    assert processor.picture.largest == 28 * 28 * 64


def test_a_checkpoint_without_a_mark_for_videos_takes_pictures(
    opener: Callable[..., Any], tmp_path: Path
) -> None:
    folder = write_tiny_checkpoint(tmp_path)
    for file, known in (("config.json", "video_token_id"), ("tokenizer.json", "<|video_pad|>")):
        path = folder / file
        path.write_text(path.read_text().replace(known, "other"))
    assert opener(folder).adapter.inputs.modalities == ("image",)


def test_processor_config_is_read_too(opener: Callable[..., Any], tmp_path: Path) -> None:
    folder = write_tiny_checkpoint(tmp_path)
    settings = json.loads((folder / "preprocessor_config.json").read_text())
    (folder / "preprocessor_config.json").unlink()
    settings["max_pixels"] = 28 * 28 * 8
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": settings}))
    assert opener(folder).adapter.inputs.picture.largest == 28 * 28 * 8


@pytest.mark.parametrize(
    ("file", "change", "word"),
    [
        ("preprocessor_config.json", {"patch_size": 16}, "= .16, 2, 2., config.json .14, 2, 2."),
        ("preprocessor_config.json", {"merge_size": 1}, "merge_size. = .14, 2, 1."),
        ("config.json", {"hidden_size": None}, "hidden_size"),
        ("config.json", {"vision_config": None}, "vision_config"),
        ("config.json", {"hidden_act": "mish"}, "'mish'"),
    ],
)
def test_a_config_that_does_not_fit_is_named(
    opener: Callable[..., Any], tmp_path: Path, file: str, change: dict[str, Any], word: str
) -> None:
    path = write_tiny_checkpoint(tmp_path) / file
    values = json.loads(path.read_text()) | change
    path.write_text(json.dumps({name: value for name, value in values.items() if value is not None}))
    with pytest.raises(CheckpointError, match=word):
        opener(tmp_path)


def test_an_untied_checkpoint_without_head_is_incomplete(opener: Callable[..., Any], tmp_path: Path) -> None:
    path = write_tiny_checkpoint(tmp_path) / "config.json"
    path.write_text(path.read_text().replace('"tie_word_embeddings": true', '"tie_word_embeddings": false'))
    with pytest.raises(WeightError, match=r"lm_head\.weight"):
        opener(tmp_path)


def test_the_adapter_imports_no_torch() -> None:
    code = "import sys, mmcore_qwen2vl.adapter; assert 'torch' not in sys.modules, 'torch'"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
