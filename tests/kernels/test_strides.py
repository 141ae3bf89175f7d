"""Kernels read tensors of any memory layout: a transposed convolution's output is one, of a single item."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from mmcore.kernels.layer_norm import layer_norm_reference
from mmcore.kernels.quick_gelu import quick_gelu_reference
from mmcore.kernels.rms_norm import rms_norm_reference
from mmcore.kernels.rotary import rotary_reference
from mmcore.kernels.swiglu import swiglu_reference

TOKENS, WIDTH, EPS = 5, 32, 1e-5


def values(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def layouts(*shape: int) -> dict[str, Tensor]:
    """The same shape in other memory: columns far apart, or every other value of something larger."""
    return {
        "transposed": values(*shape[:-2], shape[-1], shape[-2]).transpose(-1, -2),
        "sliced": values(*shape[:-1], 2 * shape[-1])[..., ::2],
    }


LAYOUTS = ("transposed", "sliced")


def call(interpreter: Any, name: str, *arguments: Tensor | float) -> Any:
    """The Triton kernel's answer."""
    return interpreter.call(f"mmcore.kernels.{name}", name, *arguments)[0]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_norms(interpreter: Any, layout: str) -> None:
    x, weight, bias = layouts(TOKENS, WIDTH)[layout], values(WIDTH), values(WIDTH)
    residual = layouts(TOKENS, WIDTH)[layout] + 1.0
    normed, _ = call(interpreter, "layer_norm", x, weight, bias, EPS)
    torch.testing.assert_close(normed, layer_norm_reference(x, weight, bias, EPS))
    normed, total = call(interpreter, "layer_norm", x, weight, bias, EPS, residual)
    torch.testing.assert_close(total, x + residual)
    torch.testing.assert_close(normed, layer_norm_reference(x + residual, weight, bias, EPS))
    normed = call(interpreter, "rms_norm", x, weight, EPS)
    torch.testing.assert_close(normed, rms_norm_reference(x, weight, EPS))
    normed, _ = call(interpreter, "rms_norm", x, weight, EPS, residual)
    torch.testing.assert_close(normed, rms_norm_reference(x + residual, weight, EPS))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_activations(interpreter: Any, layout: str) -> None:
    x = layouts(TOKENS, WIDTH)[layout]
    found = call(interpreter, "quick_gelu", x)
    torch.testing.assert_close(found, quick_gelu_reference(x))
    found = call(interpreter, "swiglu", x)
    torch.testing.assert_close(found, swiglu_reference(x))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rotary(interpreter: Any, layout: str) -> None:
    q, k = layouts(TOKENS, 4, 16)[layout], layouts(TOKENS, 2, 16)[layout]
    cos, sin = layouts(TOKENS, 8)[layout], layouts(TOKENS, 8)[layout]
    found = call(interpreter, "rotary", q, k, cos, sin)
    for mine, wanted in zip(found, rotary_reference(q, k, cos, sin), strict=True):
        torch.testing.assert_close(mine, wanted)
