"""Values of e4m3 out of 16-bit pairs, in float16, which holds them all.

The matrix unit's loads transpose 16 bits, no 8: as pairs, values stay where the loads put them.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import os

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")
"""The interpreter reads no PTX. Compiled, what it does instead takes three times the instructions."""


@triton.jit
def first_of(pair):
    """The value in the lower byte."""
    if INTERPRETED:
        return (pair & 0xFF).to(tl.uint8).to(tl.float8e4nv, bitcast=True).to(tl.float16)
    return tl.inline_asm_elementwise(  # two pairs at once: their lower bytes side by side, then both widened
        """{
        .reg .b32 bytes;
        .reg .b16 low, high;
        prmt.b32 bytes, $1, 0, 0x4420;
        mov.b32 {low, high}, bytes;
        cvt.rn.f16x2.e4m3x2 $0, low;
        }""",
        "=r,r",
        [pair],
        dtype=tl.float16,
        is_pure=True,
        pack=2,
    )


@triton.jit
def second_of(pair):
    """The value in the upper byte."""
    if INTERPRETED:
        return (pair >> 8).to(tl.uint8).to(tl.float8e4nv, bitcast=True).to(tl.float16)
    return tl.inline_asm_elementwise(
        """{
        .reg .b32 bytes;
        .reg .b16 low, high;
        prmt.b32 bytes, $1, 0, 0x4431;
        mov.b32 {low, high}, bytes;
        cvt.rn.f16x2.e4m3x2 $0, low;
        }""",
        "=r,r",
        [pair],
        dtype=tl.float16,
        is_pure=True,
        pack=2,
    )
