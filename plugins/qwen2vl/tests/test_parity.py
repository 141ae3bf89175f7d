"""Against transformers in float32: preprocessing, encoder rows, positions, logits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mmcore_qwen2vl.testing import TOKEN_IDS
from PIL import Image

from mmcore.adapter import Layout
from mmcore.inputs.ops import NumpyOps
from mmcore.request import DecodedMedia, ItemPlan, MediaInfo, PlaceholderRange

transformers = pytest.importorskip("transformers")

IMAGE = TOKEN_IDS["<|image_pad|>"]
FORMS: list[tuple[str, dict[str, Any]]] = [
    ("2", {}),
    ("2.5", {}),
    ("2", {"nested": True, "prefixed": True, "tied": False, "shards": 3}),
    ("2.5", {"nested": True, "prefixed": True, "tied": False, "shards": 2, "depth": 3, "heads": 2}),
]


def sizes(smallest: int = 1, largest: int = 320) -> st.SearchStrategy[tuple[int, int]]:
    side = st.integers(smallest, largest)
    return st.tuples(side, side).filter(lambda size: max(size) <= 200 * min(size))


def load_theirs(folder: Path) -> Any:
    model, report = transformers.AutoModelForImageTextToText.from_pretrained(
        folder, dtype="float32", output_loading_info=True
    )
    assert not any(report.values()), report
    return model.eval()


@pytest.fixture(scope="module", params=FORMS, ids=["2", "2.5", "2-nested", "2.5-nested"])
def pair(request: pytest.FixtureRequest, tiny_of: Callable[..., Any]) -> tuple[Any, Any]:
    variant, overrides = request.param
    ours = tiny_of(variant, **overrides)
    return ours, load_theirs(ours.folder)


@pytest.fixture(scope="module")
def their_processor(tiny_of: Callable[..., Any]) -> Any:
    return transformers.AutoImageProcessor.from_pretrained(tiny_of("2").folder, backend="pil")


@settings(max_examples=60)
@given(size=sizes(1, 700), seed=st.integers(0, 99))
def test_preprocessing_equals_the_pillow_backend(
    tiny_of: Callable[..., Any], their_processor: Any, size: tuple[int, int], seed: int
) -> None:
    tiny = tiny_of("2")
    inputs = tiny.adapter.inputs
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    (plan,) = inputs.measure([MediaInfo("image", width=size[0], height=size[1])], [inputs])
    patches = tiny.pixels([inputs.preprocess(DecodedMedia("image", pixels), plan, NumpyOps())], [plan])
    theirs = their_processor(Image.fromarray(pixels), return_tensors="np")
    assert theirs["image_grid_thw"][0].tolist() == list(plan.geometry)
    assert np.abs(patches - theirs["pixel_values"]).max() <= 1e-6


def grids(plans: list[ItemPlan]) -> torch.Tensor:
    return torch.tensor([plan.geometry for plan in plans])


def relative(mine: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((mine - theirs).abs().max() / theirs.abs().max())


@settings(max_examples=15)
@given(pictures=st.lists(sizes(), min_size=1, max_size=4))
def test_encoder_rows(pair: tuple[Any, Any], pictures: list[tuple[int, int]]) -> None:
    ours, theirs = pair
    inputs, plans = ours.items(*pictures)
    with torch.inference_mode():
        expected = theirs.model.visual(
            torch.from_numpy(ours.pixels(inputs, plans)), grid_thw=grids(plans)
        ).pooler_output
    assert relative(ours.encode(inputs, plans), expected) <= 1e-5


def prompt(plans: list[ItemPlan], texts: list[list[int]]) -> tuple[list[int], tuple[PlaceholderRange, ...]]:
    """Text i, then picture i between its vision marks; the last text at the end."""
    ids: list[int] = []
    ranges = []
    for n, (plan, text) in enumerate(zip(plans, texts, strict=False)):
        ids += [*text, TOKEN_IDS["<|vision_start|>"]]
        ranges.append(PlaceholderRange(len(ids), plan.rows, n, 0))
        ids += [IMAGE] * plan.rows + [TOKEN_IDS["<|vision_end|>"]]
    return ids + texts[-1], tuple(ranges)


@settings(max_examples=15)
@given(data=st.data())
def test_positions_and_logits(pair: tuple[Any, Any], data: st.DataObject) -> None:
    ours, theirs = pair
    pictures = data.draw(st.lists(sizes(), min_size=1, max_size=3))
    text = st.lists(st.integers(0, 255), max_size=12)
    texts = data.draw(st.lists(text, min_size=len(pictures) + 1, max_size=len(pictures) + 1))
    inputs, plans = ours.items(*pictures)
    ids, ranges = prompt(plans, texts)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(ids) - 1), max_size=3)))

    layout = Layout(len(ids), ranges, tuple(plans), ("image",) * len(plans))
    positions = ours.adapter.positions(layout)
    tokens = torch.tensor([ids])
    kinds = (tokens == IMAGE).int()
    their_positions, their_delta = theirs.model.get_rope_index(tokens, kinds, grids(plans))
    assert np.array_equal(their_positions[:, 0].numpy(), positions.values)
    assert int(their_delta) == positions.delta

    with torch.inference_mode():
        expected = theirs(
            input_ids=tokens,
            pixel_values=torch.from_numpy(ours.pixels(inputs, plans)),
            image_grid_thw=grids(plans),
            mm_token_type_ids=kinds,
        ).logits[0]
    rows = ours.encode(inputs, plans)
    mine = ours.logits(ids, rows, torch.from_numpy(positions.values).long(), cuts)
    worst = ((mine - expected).abs().amax(1) / expected.abs().amax(1)).max()
    assert float(worst) <= 1e-4
    assert torch.equal(mine.argmax(1), expected.argmax(1))


@pytest.mark.parametrize("variant", ["2", "2.5"])
def test_a_checkpoint_saved_by_transformers(
    variant: str, tiny_of: Callable[..., Any], opener: Callable[[Path], Any], tmp_path: Path
) -> None:
    """Saved anew from its own classes: the files of the folder beside it, weights equal."""
    source = tiny_of(variant)
    theirs = load_theirs(source.folder)
    fresh = type(theirs)(theirs.config)
    fresh.load_state_dict(theirs.state_dict())
    fresh.save_pretrained(tmp_path)
    for name in (
        "preprocessor_config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ):
        (tmp_path / name).write_bytes((source.folder / name).read_bytes())
    reopened = opener(tmp_path)
    assert (
        reopened.adapter.decoder == source.adapter.decoder
        or reopened.adapter.encoder == source.adapter.encoder
    )
    for (name, mine), (_, saved) in zip(
        source.model.named_parameters(), reopened.model.named_parameters(), strict=True
    ):
        assert torch.equal(mine, saved), name
