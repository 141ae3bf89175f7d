"""Operations on tokens one by one, and attention inside packed segments: launcher against reference."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcore.errors import EngineError
from mmcore.kernels.argmax import argmax, argmax_reference
from mmcore.kernels.merge_embeddings import merge_embeddings, merge_embeddings_reference
from mmcore.kernels.rms_norm import rms_norm, rms_norm_reference
from mmcore.kernels.rotary import rotary, rotary_reference
from mmcore.kernels.rotary_angles import rotary_angles, rotary_angles_reference
from mmcore.kernels.swiglu import swiglu, swiglu_reference
from mmcore.kernels.varlen_attention import varlen_attention, varlen_attention_reference

seeds = st.integers(0, 2**31)
widths = st.sampled_from([1, 5, 64, 123])


@given(st.integers(0, 9), widths, seeds)
def test_rms_norm(tokens: int, width: int, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    x, residual = torch.randn(2, tokens, width, generator=random)
    weight = torch.randn(width, generator=random)
    torch.testing.assert_close(rms_norm(x, weight, 1e-6), rms_norm_reference(x, weight, 1e-6))
    normed, total = rms_norm(x, weight, 1e-6, residual)
    assert torch.equal(total, x + residual)
    torch.testing.assert_close(normed, rms_norm_reference(x + residual, weight, 1e-6))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rms_norm_half_precision_has_float32_statistics(dtype: torch.dtype) -> None:
    x = (torch.randn(3, 64) * 300).to(dtype)  # the squares overflow float16
    weight = torch.randn(64).to(dtype)
    truth = rms_norm_reference(x.float(), weight.float(), 1e-6)
    assert torch.equal(rms_norm(x, weight, 1e-6), truth.to(dtype))


@given(st.integers(0, 9), st.sampled_from([(2, 8, 8), (7, 20, 20), (4, 16, 4)]), seeds)
def test_rotary(tokens: int, shape: tuple[int, int, int], seed: int) -> None:
    heads, size, turned = shape
    random = torch.Generator().manual_seed(seed)
    q = torch.randn(tokens, heads, size, generator=random)
    k = torch.randn(tokens, 1, size, generator=random)
    angles = torch.randn(tokens, turned // 2, generator=random) * 100
    for got, wanted in zip(
        rotary(q, k, angles.cos(), angles.sin()),
        rotary_reference(q, k, angles.cos(), angles.sin()),
        strict=True,
    ):
        torch.testing.assert_close(got, wanted)
        assert torch.equal(got[..., turned:], wanted[..., turned:])


@given(st.integers(0, 9), widths, seeds)
def test_swiglu(tokens: int, width: int, seed: int) -> None:
    gate_up = torch.randn(tokens, 2 * width, generator=torch.Generator().manual_seed(seed)) * 5
    before = gate_up.clone()
    torch.testing.assert_close(swiglu(gate_up), swiglu_reference(gate_up))
    assert torch.equal(gate_up, before)


@given(st.permutations(range(8)), st.integers(0, 8), seeds)
def test_merge_embeddings(order: list[int], count: int, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    hidden = torch.randn(8, 5, generator=random).bfloat16()
    rows = torch.randn(count, 5, generator=random)
    positions = torch.tensor(order[:count], dtype=torch.int64)
    wanted = merge_embeddings_reference(hidden.clone(), rows, positions)
    assert merge_embeddings(hidden, rows, positions) is hidden
    assert torch.equal(hidden, wanted)


def _placed(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A hidden state, rows as columns of something wider, and positions of which every third is padding."""
    random = torch.Generator().manual_seed(seed)
    hidden = torch.randn(8, 5, generator=random).half()  # bfloat16 is cut, not rounded, by the interpreter
    rows = torch.randn(count, 9, generator=random)[:, 2:7]
    positions = torch.randperm(8, generator=random)[:count]
    positions[::3] = -1
    return hidden, rows, positions


@given(st.integers(0, 8), seeds)
@settings(max_examples=10)
def test_merge_embeddings_in_interpreter(interpreter: Any, count: int, seed: int) -> None:
    hidden, rows, positions = _placed(count, seed)
    wanted = merge_embeddings_reference(hidden.clone(), rows, positions)
    got, _ = interpreter.call("mmcore.kernels.merge_embeddings", "merge_embeddings", hidden, rows, positions)
    assert torch.equal(got, wanted)
    assert torch.equal(merge_embeddings(hidden, rows, positions), wanted)


def _axes(sections: tuple[int, ...]) -> torch.Tensor:
    return torch.tensor([n for n, size in enumerate(sections) for _ in range(size)])


sections = st.sampled_from([(8,), (2, 3, 3), (16, 24, 24), (5,)])


@given(st.integers(0, 5), sections, seeds)
@settings(max_examples=15)
def test_rotary_angles(interpreter: Any, tokens: int, parts: tuple[int, ...], seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    positions = torch.randint(0, 40_000, (len(parts), 2 * tokens), generator=random)[:, ::2]
    frequencies = 1e6 ** -(torch.arange(sum(parts)) / sum(parts))
    arguments = positions, frequencies, _axes(parts)
    wanted = rotary_angles_reference(*arguments)
    torch.testing.assert_close(rotary_angles(*arguments), wanted, rtol=0, atol=1e-6)
    got, _ = interpreter.call("mmcore.kernels.rotary_angles", "rotary_angles", *arguments)
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-6)


def test_merge_embeddings_names_a_misfit() -> None:
    with pytest.raises(EngineError, match="for 2 positions of width 4"):
        merge_embeddings(torch.zeros(5, 4), torch.zeros(3, 4), torch.tensor([0, 1]))


@given(
    st.lists(st.sampled_from([0, 1, 7, 7, 30]), min_size=1, max_size=6),
    st.sampled_from([(2, 2), (6, 2)]),
    seeds,
)
def test_varlen_attention(lens: list[int], heads: tuple[int, int], seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    starts = torch.tensor(list(accumulate(lens, initial=0)), dtype=torch.int32)
    q = torch.randn(int(starts[-1]), heads[0], 20, generator=random)
    k, v = torch.randn(2, int(starts[-1]), heads[1], 20, generator=random)
    got = varlen_attention(q, k, v, starts, max(lens), 0.2)
    torch.testing.assert_close(got, varlen_attention_reference(q, k, v, starts, 0.2), rtol=0, atol=2e-6)


def test_varlen_attention_names_a_misfit() -> None:
    q, k = torch.zeros(4, 3, 8), torch.zeros(4, 2, 8)
    with pytest.raises(EngineError, match="multiple of key heads"):
        varlen_attention(q, k, k, torch.tensor([0, 4]), 4, 1.0)


@given(st.integers(0, 3), widths, seeds, st.sampled_from([torch.float32, torch.float16]))
@settings(max_examples=10)
def test_rms_norm_in_interpreter(
    interpreter: Any, tokens: int, width: int, seed: int, dtype: torch.dtype
) -> None:
    random = torch.Generator().manual_seed(seed)
    x, residual = torch.randn(2, tokens, width, generator=random).to(dtype)
    weight = torch.randn(width, generator=random).to(dtype)
    place = "mmcore.kernels.rms_norm", "rms_norm"
    alone, _ = interpreter.call(*place, x, weight, 1e-6)
    torch.testing.assert_close(alone, rms_norm_reference(x, weight, 1e-6))
    (normed, total), _ = interpreter.call(*place, x, weight, 1e-6, residual)
    assert torch.equal(total, x + residual)
    torch.testing.assert_close(normed, rms_norm_reference(x + residual, weight, 1e-6))


@given(st.integers(0, 3), st.sampled_from([(2, 8, 8), (7, 20, 20), (2, 12, 8), (3, 80, 80)]), seeds)
@settings(max_examples=10)
def test_rotary_in_interpreter(interpreter: Any, tokens: int, shape: tuple[int, int, int], seed: int) -> None:
    heads, size, turned = shape
    random = torch.Generator().manual_seed(seed)
    fused = torch.randn(tokens, heads + 2, size, generator=random)
    angles = torch.randn(tokens, turned // 2, generator=random)
    arguments = fused[:, :heads], fused[:, heads:], angles.cos(), angles.sin()
    got, _ = interpreter.call("mmcore.kernels.rotary", "rotary", *arguments)
    for turned_heads, wanted in zip(got, rotary_reference(*arguments), strict=True):
        torch.testing.assert_close(turned_heads, wanted)


@given(st.integers(0, 3), st.sampled_from([1, 123, 1025]), seeds)
@settings(max_examples=10)
def test_swiglu_in_interpreter(interpreter: Any, tokens: int, width: int, seed: int) -> None:
    gate_up = torch.randn(tokens, 2 * width, generator=torch.Generator().manual_seed(seed)) * 5
    got, _ = interpreter.call("mmcore.kernels.swiglu", "swiglu", gate_up)
    torch.testing.assert_close(got, swiglu_reference(gate_up))


@given(
    st.lists(st.sampled_from([0, 1, 7, 33, 64, 70]), min_size=1, max_size=4),
    st.sampled_from([(2, 2), (4, 2)]),
    st.sampled_from([8, 20, 64, 72, 80, 96]),
    seeds,
)
@settings(max_examples=12)
def test_varlen_attention_in_interpreter(
    interpreter: Any, lens: list[int], heads: tuple[int, int], size: int, seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    starts = torch.tensor(list(accumulate(lens, initial=0)), dtype=torch.int32)
    fused = torch.randn(int(starts[-1]), heads[0] + 2 * heads[1], size, generator=random)
    q, k, v = torch.split(fused, [heads[0], heads[1], heads[1]], dim=1)
    place = "mmcore.kernels.varlen_attention", "varlen_attention"
    got, _ = interpreter.call(*place, q, k, v, starts, max(lens), size**-0.5)
    truth = varlen_attention_reference(q, k, v, starts, size**-0.5)
    torch.testing.assert_close(got, truth, rtol=0, atol=4e-6)


@given(
    st.integers(0, 3),
    st.sampled_from([1, 37, 4096, 9001]),
    st.sampled_from(["ties", "nan", "none finite"]),
    seeds,
)
@settings(max_examples=15)
def test_argmax(interpreter: Any, rows: int, width: int, kind: str, seed: int) -> None:
    """Of few distinct values, so that equals meet across the kernel's stretches too."""
    random = torch.Generator().manual_seed(seed)
    logits = torch.randint(0, 3, (rows, 2 * width), generator=random).float()[:, :width]
    if kind == "nan":
        logits[:, ::2] = torch.nan
    if kind == "none finite":
        logits[:] = -torch.inf
    values, columns = argmax_reference(logits)
    for found in (argmax(logits), interpreter.call("mmcore.kernels.argmax", "argmax", logits)[0]):
        assert torch.allclose(found[0], values, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(found[1], columns)


def test_argmax_names_a_misfit() -> None:
    with pytest.raises(EngineError, match="must be"):
        argmax(torch.zeros(3, 0))
