"""``skinny_linear`` on the CPU and in the interpreter: every epilogue, odd widths, one row and several."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mmcore.kernels.activations import ACTIVATIONS
from mmcore.kernels.skinny_linear import (
    HOST_ROWS,
    MAX_ROWS,
    WIDE,
    RowNorm,
    skinny_linear,
    skinny_linear_reference,
)


def case(rows: int, width: int, depth: int, gated: bool, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x as columns of something wider, weight, bias, and a residual of the result's shape."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, depth + 8, generator=random)[:, :depth]
    weight = torch.randn(width * (1 + gated), depth, generator=random) / depth**0.5
    bias = torch.randn(len(weight), generator=random)
    return x, weight, bias, torch.randn(rows, width, generator=random)


@given(
    rows=st.sampled_from([0, 1, 1, 2, 5, MAX_ROWS, MAX_ROWS + 1]),
    width=st.sampled_from([1, 16, 37]),
    depth=st.sampled_from([16, 100, 600]),
    gated=st.booleans(),
    biased=st.booleans(),
    added=st.booleans(),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=25)
def test_equals_the_reference(
    interpreter: Any, rows: int, width: int, depth: int, gated: bool, biased: bool, added: bool, seed: int
) -> None:
    x, weight, bias, residual = case(rows, width, depth, gated, seed)
    arguments = x, weight, bias if biased else None, residual if added else None
    wanted = skinny_linear_reference(*arguments, gated=gated)
    torch.testing.assert_close(skinny_linear(*arguments, gated=gated), wanted, rtol=1e-5, atol=1e-5)
    got, _ = interpreter.call("mmcore.kernels.skinny_linear", "skinny_linear", *arguments, gated=gated)
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("gated", [False, True])
def test_half_precision(interpreter: Any, assert_within_twice: Any, rows: int, gated: bool) -> None:
    arguments = [x.half() for x in case(rows, 40, 300, gated, seed=rows)]
    got, _ = interpreter.call("mmcore.kernels.skinny_linear", "skinny_linear", *arguments, gated=gated)
    truth = skinny_linear_reference(*(x.float() for x in arguments), gated=gated)
    assert_within_twice(got, skinny_linear_reference(*arguments, gated=gated), truth)


def norm_of(depth: int, centred: bool, seed: int) -> RowNorm:
    random = torch.Generator().manual_seed(seed)
    gain, shift = 1 + torch.randn(2, depth, generator=random) / 4
    return RowNorm(gain, shift if centred else None, 1e-5)


@given(
    rows=st.sampled_from([1, 1, 3]),
    depth=st.sampled_from([16, 100, 600]),
    act=st.sampled_from([None, *ACTIVATIONS]),
    centred=st.booleans(),
    gated=st.booleans(),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=20)
def test_norm_before_and_activation_after(
    interpreter: Any, rows: int, depth: int, act: str | None, centred: bool, gated: bool, seed: int
) -> None:
    x, weight, bias, residual = case(rows, 24, depth, gated, seed)
    options: Any = {"norm": norm_of(depth, centred, seed), "act": None if gated else act, "gated": gated}
    wanted = skinny_linear_reference(x + 3, weight, bias, residual, **options)
    got = skinny_linear(x + 3, weight, bias, residual, **options)
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
    got, _ = interpreter.call(
        "mmcore.kernels.skinny_linear", "skinny_linear", x + 3, weight, bias, residual, **options
    )
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


def test_a_long_row_is_normed_before(interpreter: Any) -> None:
    x, weight, *_ = case(1, 5, 8200, False, seed=0)
    norm = norm_of(8200, True, seed=1)
    got, _ = interpreter.call("mmcore.kernels.skinny_linear", "skinny_linear", x, weight, norm=norm)
    torch.testing.assert_close(got, skinny_linear_reference(x, weight, norm=norm), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 2, HOST_ROWS, HOST_ROWS + 1])
@pytest.mark.parametrize("biased", [False, True])
def test_a_wide_result_on_the_host(rows: int, biased: bool) -> None:
    x, weight, bias, _ = case(rows, WIDE, 24, False, seed=rows)
    found = skinny_linear(x, weight, bias if biased else None)
    wanted = skinny_linear_reference(x, weight, bias if biased else None)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
