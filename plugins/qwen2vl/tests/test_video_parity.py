"""Videos, alone and among pictures, against transformers in float32.

Without torchvision transformers cannot build its video processor. Its Pillow picture processor runs on every
frame instead, and the halves of its patches (a picture is two equal frames there) are woven together two
frames at a time: the same numbers, made by other code than ours. The model is given our positions, which are
checked against a formula of their own, as the newest transformers counts otherwise after a video
(huggingface/transformers#45381).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mmcore_qwen2vl.testing import TOKEN_IDS
from PIL import Image

from mmcore.adapter import Layout
from mmcore.inputs.media import decode
from mmcore.inputs.ops import NumpyOps
from mmcore.request import ArraySource, DecodedMedia, EncoderInput, ItemPlan, MediaInfo, PlaceholderRange

transformers = pytest.importorskip("transformers")

PADS = {"image": TOKEN_IDS["<|image_pad|>"], "video": TOKEN_IDS["<|video_pad|>"]}


@dataclass(frozen=True)
class Medium:
    """``rate`` 0: a picture, or frames without a rate."""

    modality: str
    frames: int
    width: int
    height: int
    rate: float = 0.0
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def pixels(self) -> np.ndarray:
        """Coloured squares that differ from frame to frame, uint8 [frames, height, width, 3]."""
        generator = np.random.default_rng([self.frames, self.width, self.height])
        small = generator.integers(0, 256, (self.frames, 8, 8, 3), np.uint8)
        side = -(-max(self.width, self.height) // 8)
        return small.repeat(side, 1).repeat(side, 2)[:, : self.height, : self.width]

    @property
    def info(self) -> MediaInfo:
        seconds = self.frames / self.rate if self.rate else 0.0
        frames = self.frames if self.modality == "video" else 0
        return MediaInfo(self.modality, width=self.width, height=self.height, frames=frames, seconds=seconds)


def sampled(medium: Medium) -> list[int]:
    """Which frames: the arithmetic of transformers' `sample_frames`, exact."""
    options = {"fps": 2.0, "min_frames": 4, "max_frames": 768, **dict(medium.options)}
    if "frames" in options:
        return list(options["frames"])
    if not medium.rate:
        return list(range(medium.frames))
    most = min(options["max_frames"], medium.frames) // 2 * 2
    count = min(max(medium.frames / medium.rate * options["fps"], options["min_frames"]), most)
    count = max(int(count + 1e-6) // 2 * 2, 1)
    return [n * medium.frames // count for n in range(count)]


def seconds_per_grid(medium: Medium, count: int) -> float:
    options = dict(medium.options)
    if "frames" in options:
        first, last = options["frames"][0], options["frames"][-1]
        return float(2 * (last - first) / medium.rate / max(1, count - 1))
    if not medium.rate:
        return 2 / float(options.get("fps", 2.0))
    return float(2 / (count / medium.frames * medium.rate))  # temporal patch / sampled rate


def pictures() -> st.SearchStrategy[Medium]:
    side = st.integers(20, 130)
    return st.builds(Medium, st.just("image"), st.just(1), side, side)


@st.composite
def videos(draw: st.DrawFn) -> Medium:
    frames, side = draw(st.integers(1, 12)), st.integers(20, 130)
    rate = draw(st.sampled_from([0.0, 1.0, 3.0, 7.5, 24.0, 29.97]))
    options: dict[str, Any] = {}
    kind = draw(st.sampled_from(["plain", "fps", "frames", "bounds"]))
    if kind == "fps":
        options["fps"] = draw(st.sampled_from([0.5, 1, 2.0, 6.0]))
    elif kind == "frames" and rate:
        chosen = draw(st.sets(st.integers(0, frames - 1), min_size=1, max_size=5))
        options["frames"] = tuple(sorted(chosen))
    elif kind == "bounds" and rate:
        options |= {"min_frames": draw(st.integers(1, 4)), "max_frames": draw(st.integers(4, 8))}
    return Medium("video", frames, draw(side), draw(side), rate, tuple(options.items()))


@st.composite
def conversations(draw: st.DrawFn) -> tuple[list[Medium], list[list[int]]]:
    """One or several videos, pictures between them, and text around each."""
    media = [draw(videos()), *draw(st.lists(st.one_of(videos(), pictures()), max_size=2))]
    media = list(draw(st.permutations(media)))
    text = st.lists(st.integers(0, 255), max_size=8)
    return media, [draw(text) for _ in range(len(media) + 1)]


@pytest.fixture(scope="module", params=["2", "2.5"])
def pair(request: pytest.FixtureRequest, tiny_of: Callable[..., Any]) -> tuple[str, Any, Any, Any]:
    ours = tiny_of(request.param)
    processor = transformers.AutoImageProcessor.from_pretrained(ours.folder, backend="pil")
    model = transformers.AutoModelForImageTextToText.from_pretrained(ours.folder, dtype="float32")
    return request.param, ours, processor, model.eval()


def prepared(ours: Any, media: list[Medium]) -> tuple[list[EncoderInput], list[ItemPlan]]:
    base = ours.adapter.inputs
    processors = [base.with_options(dict(medium.options)) for medium in media]
    plans = base.measure([medium.info for medium in media], processors)
    inputs = []
    for medium, plan, processor in zip(media, plans, processors, strict=True):
        pixels = medium.pixels if medium.modality == "video" else medium.pixels[0]
        source = ArraySource(DecodedMedia(medium.modality, pixels))
        found = decode(source, medium.modality, plan.source)
        inputs.append(processor.preprocess(found, plan, NumpyOps()))
    return inputs, list(plans)


def laid_out(
    media: list[Medium], plans: list[ItemPlan], texts: list[list[int]]
) -> tuple[list[int], Layout, list[int | tuple[int, int, int, float]]]:
    """Token ids, what our adapter sees of them, and what the formula of this page counts."""
    ids: list[int] = []
    counted: list[int | tuple[int, int, int, float]] = []
    ranges = []
    for n, (medium, plan, text) in enumerate(zip(media, plans, texts, strict=False)):
        before = [*text, TOKEN_IDS["<|vision_start|>"]]
        ranges.append(PlaceholderRange(len(ids) + len(before), plan.rows, n, 0))
        ids += [*before, *[PADS[medium.modality]] * plan.rows, TOKEN_IDS["<|vision_end|>"]]
        time, height, width = plan.geometry
        step = seconds_per_grid(medium, len(sampled(medium))) if medium.modality == "video" else 0.0
        counted += [*before, (time, height // 2, width // 2, step), TOKEN_IDS["<|vision_end|>"]]
    ids += texts[-1]
    modalities = tuple(medium.modality for medium in media)
    return ids, Layout(len(ids), tuple(ranges), tuple(plans), modalities), [*counted, *texts[-1]]


@settings(max_examples=60)
@given(conversation=conversations())
def test_patches_positions_and_logits(
    pair: tuple[str, Any, Any, Any],
    reference: Any,
    conversation: tuple[list[Medium], list[list[int]]],
) -> None:
    variant, ours, processor, theirs = pair
    media, texts = conversation
    inputs, plans = prepared(ours, media)
    ids, layout, counted = laid_out(media, plans, texts)
    arguments = reference_arguments(reference, processor, media)
    for modality, name in (("image", "pixel_values"), ("video", "pixel_values_videos")):
        chosen = [n for n, medium in enumerate(media) if medium.modality == modality]
        if chosen:
            patches = ours.pixels([inputs[n] for n in chosen], [plans[n] for n in chosen])
            assert np.abs(patches - arguments[name].numpy()).max() <= 1e-6

    positions = ours.adapter.positions(layout)
    expected_positions = reference.positions(counted, variant)
    assert np.array_equal(positions.values, expected_positions.numpy())
    assert positions.delta == int(expected_positions.max()) + 1 - len(ids)

    tokens, values = torch.tensor([ids]), torch.from_numpy(positions.values).long()
    kinds = (tokens == PADS["image"]).int() + 2 * (tokens == PADS["video"]).int()
    with torch.inference_mode():
        expected = theirs(
            input_ids=tokens, position_ids=values[:, None], mm_token_type_ids=kinds, **arguments
        ).logits[0]
    mine = ours.logits(ids, ours.encode(inputs, plans), values, [len(ids) // 2])
    worst = ((mine - expected).abs().amax(1) / expected.abs().amax(1)).max()
    assert float(worst) <= 1e-4
    assert torch.equal(mine.argmax(1), expected.argmax(1))


def reference_arguments(reference: Any, processor: Any, media: list[Medium]) -> dict[str, torch.Tensor]:
    """What transformers' model takes, made from the media by its own processor."""
    values: dict[str, list[np.ndarray]] = {"image": [], "video": []}
    grids: dict[str, list[Any]] = {"image": [], "video": []}
    for medium in media:
        if medium.modality == "image":
            arrays = processor(Image.fromarray(medium.pixels[0]), return_tensors="np")
            patches, grid = arrays["pixel_values"], arrays["image_grid_thw"][0].tolist()
        else:
            patches, grid = reference.weave(processor, [medium.pixels[n] for n in sampled(medium)])
        values[medium.modality].append(patches)
        grids[medium.modality].append(grid)
    arguments = {}
    for modality, suffix in (("image", ""), ("video", "_videos")):
        if values[modality]:
            arguments[f"pixel_values{suffix}"] = torch.from_numpy(np.concatenate(values[modality]))
            arguments[f"{modality}_grid_thw"] = torch.tensor(grids[modality])
    return arguments


def test_the_time_step_of_a_video_by_hand(tiny_of: Callable[..., Any]) -> None:
    """8 frames at 3 a second, all chosen: a grid step lasts 2/3 s and at 2 tokens a second is 4/3 positions.
    Nothing but the product is rounded down: 0, 1.33, 2.67, 4 become 0, 1, 2, 4."""
    inputs = tiny_of("2.5").adapter.inputs.with_options({"fps": 3})
    (plan,) = inputs.measure([MediaInfo("video", width=56, height=56, frames=8, seconds=8 / 3)], [inputs])
    assert plan.geometry == (4, 4, 4)
    layout = Layout(plan.rows + 2, (PlaceholderRange(1, plan.rows, 0, 0),), (plan,), ("video",))
    positions = tiny_of("2.5").adapter.positions(layout).values
    assert positions[0].tolist() == [0, *[1] * 4, *[2] * 4, *[3] * 4, *[5] * 4, 6]
    assert tiny_of("2").adapter.positions(layout).values[0, -1] == 5
