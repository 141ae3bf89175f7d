"""Time other tiles of the kernels beside the chosen one and beside the library, on one GPU.

    python -m benchmarks.kernel_sweep --out FILE [--part prefill --part skinny ...]

A part times each of its cells with each candidate, in the way of ``mmcore bench kernels``, and prints them,
fastest first. What is chosen by shape in ``mmcore.kernels`` was read off these tables.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import accumulate
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.functional import scaled_dot_product_attention

from mmcore.bench.attention_cells import PagedCell as Cell
from mmcore.bench.kernel_cell import COLD_BYTES, KNOWN
from mmcore.bench.kernel_times import graph_seconds
from mmcore.bench.report import save
from mmcore.kernels.argmax import argmax
from mmcore.kernels.paged_attention_launch import Tile
from mmcore.kernels.skinny_linear_triton import Tile as SkinnyTile
from mmcore.kernels.skinny_linear_triton import skinny_linear_triton
from mmcore.kernels.swiglu import swiglu
from mmcore.kernels.varlen_attention_triton import Tile as VarlenTile
from mmcore.kernels.varlen_attention_triton import varlen_attention_triton

Launches = list[Callable[[], object]]
CARD = KNOWN["NVIDIA H200"]


@dataclass(frozen=True)
class Job:
    """One candidate for one cell; ``make`` gives its launches over cold data."""

    part: str
    cell: str
    candidate: str
    floor_s: float
    make: Callable[[], Launches]


@dataclass(frozen=True)
class Paged:
    cell: Cell
    options: tuple[tuple[str, Any], ...]

    def __call__(self) -> Launches:
        return list(self.cell.calls(**dict(self.options)))


@dataclass(frozen=True)
class Varlen:
    """``tile`` None: `scaled_dot_product_attention` over segments of one length."""

    lens: tuple[int, ...]
    heads: int
    size: int
    tile: VarlenTile | None

    def __call__(self) -> Launches:
        fused = torch.randn(sum(self.lens), 3 * self.heads, self.size, device="cuda").bfloat16()
        q, k, v = fused.chunk(3, dim=1)
        starts = torch.tensor(list(accumulate(self.lens, initial=0)), dtype=torch.int32, device="cuda")
        if self.tile is None:
            q, k, v = (x.view(len(self.lens), -1, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))
            return [lambda: scaled_dot_product_attention(q, k, v)]
        return [lambda: varlen_attention_triton(q, k, v, starts, max(self.lens), self.size**-0.5, self.tile)]


@dataclass(frozen=True)
class Skinny:
    """``tile`` None: the library's product, and the gate after it."""

    rows: int
    width: int
    depth: int
    gated: bool
    tile: SkinnyTile | None

    def __call__(self) -> Launches:
        outputs = self.width * (1 + self.gated)
        sets = max(2, -(-COLD_BYTES // (2 * outputs * self.depth)))
        weights = [torch.randn(outputs, self.depth, device="cuda").bfloat16() for _ in range(sets)]
        x = torch.randn(self.rows, self.depth, device="cuda").bfloat16()
        return [self._call(x, weight) for weight in weights]

    def _call(self, x: torch.Tensor, weight: torch.Tensor) -> Callable[[], object]:
        if self.tile is not None:
            return lambda: skinny_linear_triton(x, weight, gated=self.gated, tile=self.tile)
        if self.gated:
            return lambda: swiglu(F.linear(x, weight))
        return lambda: F.linear(x, weight)


@dataclass(frozen=True)
class Choice:
    rows: int
    library: bool

    def __call__(self) -> Launches:
        sets = max(2, -(-COLD_BYTES // (4 * 152064 * self.rows)))
        logits = [torch.randn(self.rows, 152064, device="cuda") for _ in range(sets)]
        return [(lambda x=x: x.argmax(-1) if self.library else argmax(x)) for x in logits]  # type: ignore[misc]


def paged_jobs(part: str, cells: list[Cell], tiles: list[Tile], **options: Any) -> Iterator[Job]:
    for cell in cells:
        for tile in tiles:
            chosen = tuple({**options, "tile": tile}.items())
            yield Job(part, str(cell), str(tuple(tile)), cell.floor(CARD), Paged(cell, chosen))


PREFILL = [
    Cell(1, 8192, 8192),
    Cell(1, 8192, 8192, block=64),
    Cell(1, 1024, 1024),
    Cell(64, 322, 322),
]
PREFILL_TILES = [
    Tile(128, 64, 4, 3), Tile(128, 64, 4, 2), Tile(128, 128, 8, 3), Tile(128, 128, 8, 2), Tile(128, 64, 8, 3),
    Tile(128, 64, 8, 4), Tile(64, 64, 4, 3), Tile(64, 128, 4, 2), Tile(128, 32, 4, 4),
]  # fmt: skip
DECODE = [
    Cell(1, 1, 1024),
    Cell(1, 1, 8192),
    Cell(8, 1, 8192),
    Cell(64, 1, 1024),
    Cell(64, 1, 8192),
]
DECODE += [
    Cell(64, 1, 640, heads=(32, 32)),
    Cell(16, 1, 1500, heads=(20, 20), size=64, causal=False),
]
DECODE_TILES = [
    Tile(16, 64, 2, 5),
    Tile(16, 64, 2, 4),
    Tile(16, 64, 4, 5),
    Tile(16, 32, 1, 6),
    Tile(16, 64, 1, 5),
]
FP8 = [replace(cell, fp8=True) for cell in (Cell(64, 1, 8192), Cell(8, 1, 8192), Cell(1, 1, 8192))]
FP8_TILES = [
    Tile(16, 128, 2, 5), Tile(16, 128, 4, 5), Tile(16, 64, 2, 5), Tile(16, 64, 2, 7), Tile(16, 64, 4, 6),
]  # fmt: skip
TOWERS = [
    ((3996,), 16, 80),
    ((1024,) * 4, 16, 80),
    ((1024,) * 64, 16, 80),
    ((1500,) * 16, 20, 64),
    ((577,) * 64, 16, 64),
]
TOWERS += [((64,) * 62, 16, 80), ((729,) * 16, 16, 72)]
VARLEN_TILES = [
    VarlenTile(128, 64, 4, 3), VarlenTile(128, 64, 4, 2), VarlenTile(128, 128, 8, 2),
    VarlenTile(128, 64, 8, 3), VarlenTile(64, 64, 4, 3),
]  # fmt: skip
LINEAR = [
    (4608, 3584, False),
    (3584, 3584, False),
    (18944, 3584, True),
    (3584, 18944, False),
    (152064, 3584, False),
]
LINEAR += [
    (12288, 4096, False),
    (11008, 4096, True),
    (4096, 11008, False),
    (1280, 1280, False),
    (5120, 1280, False),
]
ONE_ROW = [(4, 512), (4, 1024), (8, 256), (8, 512), (8, 1024), (16, 256), (16, 512), (2, 1024)]
SOME_ROWS = [(16, 128), (16, 256), (16, 512), (32, 128), (32, 256), (64, 128)]


def skinny_jobs() -> Iterator[Job]:
    for rows in (1, 8):
        tiles = [
            SkinnyTile(n, k, 4, stages) for n, k in (ONE_ROW if rows == 1 else SOME_ROWS) for stages in (3, 5)
        ]
        for shape in LINEAR:
            floor = shape[0] * (1 + shape[2]) * shape[1] * 2 / CARD.read
            for tile in (None, *tiles):
                name = "library" if tile is None else str(tuple(tile))
                yield Job("skinny", f"{rows} rows, {shape}", name, floor, Skinny(rows, *shape, tile))


def varlen_jobs() -> Iterator[Job]:
    for lens, heads, size in TOWERS:
        floor = sum(4 * n * n for n in lens) * heads * size / CARD.math
        for tile in (None, *VARLEN_TILES):
            name = "library" if tile is None else str(tuple(tile))
            cell = f"{len(lens)} of {lens[0]}, {heads} heads of {size}"
            yield Job("varlen", cell, name, floor, Varlen(lens, heads, size, tile))


def choice_jobs() -> Iterator[Job]:
    for rows in (1, 64):
        for library in (True, False):
            name = "library" if library else "argmax"
            yield Job("argmax", f"{rows} rows", name, rows * 152064 * 4 / CARD.read, Choice(rows, library))


def jobs() -> Iterator[Job]:
    yield from paged_jobs("prefill", PREFILL, PREFILL_TILES)
    yield from paged_jobs("decode", DECODE, DECODE_TILES)
    yield from paged_jobs("fp8", FP8, FP8_TILES)
    yield from varlen_jobs()
    yield from skinny_jobs()
    yield from choice_jobs()


def _warm(job: Job) -> str | None:
    """Compile in a worker process, so that the timing process finds the result in Triton's cache."""
    try:
        job.make()[0]()
        torch.cuda.synchronize()
    except Exception as error:  # a tile too large for the card is an answer
        return f"{type(error).__name__}: {str(error)[:80]}"
    return None


def measure(job: Job, fault: str | None) -> dict[str, Any]:
    row = {"part": job.part, "cell": job.cell, "candidate": job.candidate, "floor_us": job.floor_s * 1e6}
    if fault is not None:
        return {**row, "us": float("inf"), "fault": fault}
    seconds, spread = graph_seconds(job.make())
    return {**row, "us": round(seconds * 1e6, 2), "spread": round(spread, 3)}


def show(rows: list[dict[str, Any]]) -> None:
    """A line a cell: its candidates, fastest first, in microseconds."""
    cells = {(row["part"], row["cell"]): row["floor_us"] for row in rows}
    for (part, cell), floor in cells.items():
        found = sorted((r["us"], r["candidate"]) for r in rows if (r["part"], r["cell"]) == (part, cell))
        print(part, cell, f"floor {floor:.1f}:", *(f"{name} {us:.1f};" for us, name in found))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", action="append", help="prefill, decode, fp8, varlen, skinny or argmax")
    options = parser.parse_args()
    wanted = [job for job in jobs() if not options.part or job.part in options.part]
    with ProcessPoolExecutor(12, mp_context=get_context("spawn")) as pool:
        faults = list(pool.map(_warm, wanted))
    rows = []
    for job, fault in zip(wanted, faults, strict=True):
        rows.append(measure(job, fault))
        save(options.out, rows=rows)
    show(rows)


if __name__ == "__main__":
    main()
