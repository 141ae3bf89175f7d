"""The page encoder against transformers' DonutSwinModel, at any size of page, patch and window."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mmcore_nougat.vision import PageEncoder
from mmcore_nougat.weights import ignored_weights, weight_rules
from mmcore_nougat.windows import window_map
from torch import nn
from transformers import DonutSwinConfig, DonutSwinModel

from mmcore.errors import CheckpointError
from mmcore.model.layers import FusedLinear
from mmcore.model.weights import digits_pattern
from mmcore.request import ItemPlan

RULES = tuple(weight_rules((), tied_head=True))
IGNORED = tuple(ignored_weights((), tied_head=True))


@st.composite
def encoders(draw: st.DrawFn) -> PageEncoder:
    depths = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    try:
        return PageEncoder(
            height=draw(st.integers(8, 70)),
            width=draw(st.integers(8, 70)),
            mean=(0.0, 0.0, 0.0),
            std=(1.0, 1.0, 1.0),
            patch=draw(st.integers(2, 4)),
            channels=8,
            depths=tuple(depths),
            heads=tuple(draw(st.sampled_from([1, 2, 4])) for _ in depths),
            window=draw(st.integers(1, 5)),
            mlp_ratio=2.0,
            activation="gelu",
            qkv_bias=draw(st.booleans()),
            norm_eps=1e-5,
            row_width=8 << (len(depths) - 1),
        )
    except CheckpointError:  # the page has too few places for its windows
        assume(False)
        raise


def reference_of(encoder: PageEncoder) -> Any:
    config = DonutSwinConfig(
        image_size=[encoder.height, encoder.width],
        patch_size=encoder.patch,
        embed_dim=encoder.channels,
        depths=list(encoder.depths),
        num_heads=list(encoder.heads),
        window_size=encoder.window,
        mlp_ratio=encoder.mlp_ratio,
        qkv_bias=encoder.qkv_bias,
    )
    torch.manual_seed(0)
    model: Any = DonutSwinModel(config, add_pooling_layer=False)
    model.eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5 if parameter.ndim > 1 else 1.0)
    return model


def fill(tower: nn.Module, reference: Any) -> None:
    """Each of the reference's tensors into its place."""
    for name, tensor in reference.state_dict().items():
        stored = f"encoder.{name}"
        if any(digits_pattern(item.source).fullmatch(stored) for item in IGNORED):
            continue
        [(rule, found)] = [(r, m) for r in RULES if (m := digits_pattern(r.source).fullmatch(stored))]
        owner, _, leaf = rule.target.format(*found.groups()).removeprefix("encoder.").rpartition(".")
        module = tower.get_submodule(owner)
        rows = module.shards(leaf)[rule.shard] if isinstance(module, FusedLinear) else slice(None)
        into = getattr(module, leaf).data[rows]
        into.copy_(tensor.reshape(into.shape))


@given(encoder=encoders(), pages=st.integers(1, 3))
@settings(max_examples=40)
def test_rows_equal_the_reference(encoder: PageEncoder, pages: int) -> None:
    reference, tower = reference_of(encoder), encoder.build()
    fill(tower, reference)
    levels = np.random.default_rng(0).integers(0, 256, (pages, encoder.height, encoder.width, 3), np.uint8)
    with torch.inference_mode():
        pixels = torch.from_numpy(levels).permute(0, 3, 1, 2) / 255
        wanted = reference(pixels).last_hidden_state.flatten(0, 1)
        found = tower(torch.from_numpy(levels))
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max() <= 1e-4 * wanted.abs().max()


@given(height=st.integers(3, 30), width=st.integers(3, 30), window=st.integers(1, 5))
def test_only_neighbours_see_each_other(height: int, width: int, window: int) -> None:
    """After a shift, which is made where there are several windows; each place is in one of them."""
    assume(min(height, width) > window)
    layout = window_map(height, width, window, window // 2)
    order, apart, count = layout["order"], layout["apart"], height * width
    assert order.reshape(-1)[layout["back"]].tolist() == list(range(count))
    assert np.bincount(order.reshape(-1), minlength=count)[:count].tolist() == [1] * count
    for places, scores in zip(order[len(order) - len(apart) :], apart, strict=True):
        rows, columns = places // width, places % width
        near = (np.abs(rows[:, None] - rows) < window) & (np.abs(columns[:, None] - columns) < window)
        real = (places < count)[:, None] & (places < count)
        assert np.array_equal((scores == 0)[real], near[real])


SMALL = PageEncoder(
    height=64,
    width=48,
    mean=(0.0, 0.0, 0.0),
    std=(1.0, 1.0, 1.0),
    patch=4,
    channels=8,
    depths=(2, 2),
    heads=(1, 2),
    window=3,
    mlp_ratio=2.0,
    activation="gelu",
    qkv_bias=True,
    norm_eps=1e-5,
    row_width=16,
)


def test_more_work_costs_more() -> None:
    deep, tall = replace(SMALL, depths=(2, 4)), replace(SMALL, depths=(2, 4), height=96)
    works = [encoder.cost(ItemPlan((), 48, 16)).work for encoder in (SMALL, deep, tall)]
    assert 0 < works[0] < works[1] < works[2]
    assert replace(SMALL, window=6).cost(ItemPlan((), 48, 16)).work > works[0]


@pytest.mark.parametrize("change", [{"heads": (3, 2)}, {"window": 7}, {"window": 0}])
def test_stages_have_windows_and_even_heads(change: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="encoder"):
        replace(SMALL, **change)
