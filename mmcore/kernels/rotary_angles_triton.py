"""Triton kernel of ``rotary_angles``: one program a token."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _angles(
    positions, frequencies, axis, cos, sin, axis_stride, token_stride, HALF: tl.constexpr, BLOCK: tl.constexpr
):
    token = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < HALF
    which = tl.load(axis + column, mask=inside, other=0)
    position = tl.load(positions + which * axis_stride + token * token_stride, mask=inside, other=0)
    angle = position.to(tl.float32) * tl.load(frequencies + column, mask=inside, other=0.0)
    tl.store(cos + token * HALF + column, tl.cos(angle), mask=inside)
    tl.store(sin + token * HALF + column, tl.sin(angle), mask=inside)


def rotary_angles_triton(positions: Tensor, frequencies: Tensor, axis: Tensor) -> tuple[Tensor, Tensor]:
    """As ``rotary_angles``."""
    tokens, half = positions.shape[1], len(frequencies)
    cos = frequencies.new_empty((tokens, half))
    sin = frequencies.new_empty((tokens, half))
    if tokens:
        _angles[(tokens,)](
            positions, frequencies, axis, cos, sin, *positions.stride(),
            half, triton.next_power_of_2(half), num_warps=1,
        )  # fmt: skip
    return cos, sin
