"""Layer norm and quick GELU: launcher against reference, on the host, interpreted, and on a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcore.kernels.layer_norm import layer_norm, layer_norm_reference
from mmcore.kernels.quick_gelu import quick_gelu, quick_gelu_reference

EPS = 1e-5
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
seeds = st.integers(0, 2**31)
widths = st.sampled_from([1, 5, 64, 123])


def norm_arguments(tokens: int, width: int, seed: int) -> tuple[torch.Tensor, ...]:
    random = torch.Generator().manual_seed(seed)
    x, residual = 3 + torch.randn(2, tokens, width, generator=random)
    weight, bias = torch.randn(2, width, generator=random)
    return x, weight, bias, residual


@given(st.integers(0, 9), widths, seeds)
def test_layer_norm(tokens: int, width: int, seed: int) -> None:
    x, weight, bias, residual = norm_arguments(tokens, width, seed)
    normed, total = layer_norm(x, weight, bias, EPS)
    assert total is x
    wanted = layer_norm_reference(x, weight, bias, EPS)
    torch.testing.assert_close(normed, wanted, rtol=1e-4, atol=1e-4)
    normed, total = layer_norm(x, weight, bias, EPS, residual)
    assert torch.equal(total, x + residual)
    wanted = layer_norm_reference(x + residual, weight, bias, EPS)
    torch.testing.assert_close(normed, wanted, rtol=1e-4, atol=1e-4)


@given(st.integers(0, 3), widths, seeds)
@settings(max_examples=8)
def test_layer_norm_in_interpreter(interpreter: Any, tokens: int, width: int, seed: int) -> None:
    x, weight, bias, residual = norm_arguments(tokens, width, seed)
    place = "mmcore.kernels.layer_norm", "layer_norm"
    (alone, _), _ = interpreter.call(*place, x, weight, bias, EPS)
    wanted = layer_norm_reference(x, weight, bias, EPS)
    torch.testing.assert_close(alone, wanted, rtol=1e-4, atol=1e-4)
    (normed, total), _ = interpreter.call(*place, x, weight, bias, EPS, residual)
    assert torch.equal(total, x + residual)
    wanted = layer_norm_reference(total, weight, bias, EPS)
    torch.testing.assert_close(normed, wanted, rtol=1e-4, atol=1e-4)


@given(st.integers(0, 9), widths, seeds)
@settings(max_examples=10)
def test_quick_gelu(interpreter: Any, tokens: int, width: int, seed: int) -> None:
    x = 4 * torch.randn(tokens, width, generator=torch.Generator().manual_seed(seed))
    wanted = quick_gelu_reference(x)
    torch.testing.assert_close(quick_gelu(x), wanted)
    got, _ = interpreter.call("mmcore.kernels.quick_gelu", "quick_gelu", x)
    torch.testing.assert_close(got, wanted)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_on_a_gpu(assert_within_twice: Any, dtype: torch.dtype) -> None:
    x, weight, bias, residual = (t.to("cuda", dtype) for t in norm_arguments(65, 1280, 3))
    normed, total = layer_norm(x, weight, bias, EPS, residual)
    assert torch.equal(total, x + residual)
    plain = torch.nn.functional.layer_norm(total, weight.shape, weight, bias, EPS)
    exact = layer_norm_reference(total.float(), weight.float(), bias.float(), EPS)
    assert_within_twice(normed, plain, exact)
    assert_within_twice(quick_gelu(x), x * torch.sigmoid(1.702 * x), quick_gelu_reference(x.float()))
