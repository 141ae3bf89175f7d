"""Triton kernel of ``skinny_linear`` with ``gated`` for 17 to 64 rows: gate, up and SwiGLU in one launch.

A program holds all rows of x against some rows of both weights, which stream by once. What counts is that
the programs of a card end together: their rows of the weight are ``WIDE``, or ``WIDE`` and 16 more, so that
no last wave is nearly empty.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from mmcore.kernels.launch import Launcher, adjoining

LEAST_ROWS, MOST_ROWS = 17, 64
BLOCK_K = 64
SHARED_BYTES = 226_000
"""Of a multiprocessor, for the tiles in flight of all its programs."""
LEAST_USE = 0.88
"""Share of a card's places that the programs must fill: below it the library's product is as fast."""


class Tile(NamedTuple):
    """Rows of each weight a program, as a power of two and 16 or none besides, and tiles in flight."""

    wide: int
    rest: int
    stages: int

    @property
    def width(self) -> int:
        return self.wide + self.rest


CANDIDATES = (Tile(64, 16, 3), Tile(128, 16, 4), Tile(64, 0, 4), Tile(128, 0, 4))
"""The faster ones first."""


@cache
def choose_tile(rows: int, width: int, processors: int) -> Tile | None:
    """The first whose programs fill the card; None where none does."""
    full = (tile for tile in CANDIDATES if _use(tile, rows, width, processors) >= LEAST_USE)
    return next(full, None)


def find_tile(x: Tensor, weight: Tensor) -> Tile | None:
    """For half precision on a CUDA device; None: take the library's product."""
    rows, depth = x.shape
    half = x.dtype == weight.dtype and x.dtype.itemsize == 2
    if not (x.is_cuda and half and LEAST_ROWS <= rows <= MOST_ROWS and depth % BLOCK_K == 0):
        return None
    block = triton.next_power_of_2(rows)
    return choose_tile(block, weight.shape[0] // 2, _processors(x.device))


@cache
def _processors(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def _use(tile: Tile, rows: int, width: int, processors: int) -> float:
    held = (2 * tile.width + rows) * BLOCK_K * 2 * tile.stages
    places = processors * max(1, min(2, SHARED_BYTES // held))
    programs = -(-width // tile.width)
    return programs / (-(-programs // places) * places)


@triton.jit
def _part(weight, places, k, start):
    return tl.load(weight + places[None, :] + (start + k)[:, None])


@triton.jit
def _store(out, gate, up, m, n, rows, N, x_type: tl.constexpr):
    value = gate * tl.sigmoid(gate) * up
    cells = (m < rows)[:, None] & (n < N)[None, :]
    tl.store(out + m[:, None] * N + n[None, :], value.to(x_type), mask=cells)


@triton.jit(do_not_specialize=["rows"])
def gated_rows(
    x, weight, out, rows, x_stride,
    N: tl.constexpr,
    K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    WIDE: tl.constexpr,
    REST: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """``silu(gate) * up`` of all rows, [BLOCK_M, WIDE + REST] of them. BLOCK_K divides K."""
    begin = tl.program_id(0) * (WIDE + REST)
    m, k = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_K)
    n = begin + tl.arange(0, WIDE)
    places = tl.minimum(n, N - 1).to(tl.int64) * K
    gate = tl.zeros([BLOCK_M, WIDE], tl.float32)
    up = tl.zeros([BLOCK_M, WIDE], tl.float32)
    upper = weight + N * K
    if REST:
        n_rest = begin + WIDE + tl.arange(0, REST)
        places_rest = tl.minimum(n_rest, N - 1).to(tl.int64) * K
        gate_rest = tl.zeros([BLOCK_M, REST], tl.float32)
        up_rest = tl.zeros([BLOCK_M, REST], tl.float32)
    for start in tl.range(0, K, BLOCK_K, num_stages=STAGES):
        value = tl.load(x + m[:, None] * x_stride + (start + k)[None, :], mask=(m < rows)[:, None], other=0.0)
        gate = tl.dot(value, _part(weight, places, k, start), gate, input_precision="ieee")
        up = tl.dot(value, _part(upper, places, k, start), up, input_precision="ieee")
        if REST:
            gate_rest = tl.dot(value, _part(weight, places_rest, k, start), gate_rest, input_precision="ieee")
            up_rest = tl.dot(value, _part(upper, places_rest, k, start), up_rest, input_precision="ieee")
    _store(out, gate, up, m, n, rows, N, out.dtype.element_ty)
    if REST:
        _store(out, gate_rest, up_rest, m, n_rest, rows, N, out.dtype.element_ty)


_launch = Launcher(gated_rows)


def gated_linear_triton(x: Tensor, weight: Tensor, tile: Tile) -> Tensor:
    """``x`` [M, K], ``weight`` [2 N, K], gate rows first; gives [M, N]. K is a multiple of `BLOCK_K`."""
    x = adjoining(x)
    rows, depth = x.shape
    width = weight.shape[0] // 2
    out = torch.empty(rows, width, dtype=x.dtype, device=x.device)
    block_m = max(16, triton.next_power_of_2(rows))
    constants = width, depth, block_m, tile.wide, tile.rest, BLOCK_K, tile.stages
    key = (*constants, x.dtype, x.device, x.stride(0), x.data_ptr() % 16 == 0, weight.data_ptr() % 16 == 0)
    grid = (triton.cdiv(width, tile.width), 1, 1)
    _launch(key, grid, (x, weight, out, rows, x.stride(0), *constants), num_warps=4)
    return out
