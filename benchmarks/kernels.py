"""Time the kernels at real shapes on one GPU, beside the time that their bytes or operations need at least.

    python benchmarks/kernels.py --out benchmarks/results/kernels-2026-11-30.json

Every launch of a captured graph reads another KV set, and all sets together exceed the L2 cache; blocks lie
in random order; a figure is the median of the replays. `benchmarks.kernel_sweep` times other tiles.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import triton

from mmcore.kernels.paged_attention import paged_attention
from mmcore.kernels.paged_attention_launch import paged_attention_triton
from mmcore.kernels.rms_norm import rms_norm
from mmcore.kernels.rotary import rotary
from mmcore.kernels.store_kv import store_kv
from mmcore.kernels.swiglu import swiglu

READ_CEILING = 4.4e12
"""Bytes per second of the best read-only kernel on this card."""
COPY_CEILING = 4.25e12
MATH_CEILING = 780e12
"""bf16 operations per second of an 8192-cubed product."""
COLD_BYTES = 256 << 20
REPLAYS = 12


@dataclass(frozen=True)
class Cell:
    """A workload of ``paged_attention``: ``rows`` times ``tokens`` queries over ``context`` positions."""

    rows: int
    tokens: int
    context: int
    heads: tuple[int, int] = (28, 4)
    size: int = 128
    block: int = 16
    causal: bool = True
    fp8: bool = False

    @property
    def kv_bytes(self) -> int:
        return self.rows * self.context * self.heads[1] * self.size * 2 * (1 if self.fp8 else 2)

    @property
    def operations(self) -> int:
        seen = self.tokens * self.context - (self.tokens * (self.tokens - 1) // 2 if self.causal else 0)
        return 4 * self.rows * seen * self.heads[0] * self.size

    @property
    def floor_s(self) -> float:
        return max(self.kv_bytes / READ_CEILING, self.operations / MATH_CEILING)


BATCHES = {1: (1024, 8192, 32768), 8: (1024, 8192, 32768), 64: (1024, 8192), 256: (1024,)}
DECODE = [
    Cell(rows, 1, context, block=block)
    for rows, contexts in BATCHES.items()
    for context in contexts
    for block in (16, 64)
]
OTHERS = [
    Cell(64, 1, 640, heads=(32, 32)),
    Cell(1, 1, 640, heads=(32, 32)),
    Cell(16, 1, 1500, heads=(20, 20), size=64, causal=False),
    Cell(1, 1, 1500, heads=(20, 20), size=64, causal=False),
    Cell(1, 1024, 1024),
    Cell(1, 8192, 8192),
    Cell(64, 1, 8192, fp8=True),
    Cell(8, 1, 8192, fp8=True),
]
TOKEN_CELLS = [
    ("store_kv", 1024), ("store_kv", 8192), ("rms_norm", 3584), ("rotary", 4096), ("swiglu", 37888),
]  # fmt: skip


def calls(cell: Cell, **options: Any) -> Iterator[Callable[[], object]]:
    """One call for each KV set of the cell; enough sets to defeat the L2 cache."""
    width = -(-cell.context // cell.block)
    sets = max(1, -(-COLD_BYTES // cell.kv_bytes))
    blocks = sets * cell.rows * width
    cache_shape = (blocks, cell.block, cell.heads[1], cell.size)
    keys, values = (torch.empty(cache_shape, dtype=torch.bfloat16, device="cuda").normal_() for _ in range(2))
    if cell.fp8:
        keys, values = (x.to(torch.float8_e4m3fn) for x in (keys, values))
        options["scales"] = torch.ones(2, cell.heads[1], device="cuda")
    tables = torch.randperm(blocks, device="cuda").int().view(sets, cell.rows, width)
    shape = (cell.rows * cell.tokens, cell.heads[0], cell.size)
    query = torch.randn(shape, dtype=torch.bfloat16, device="cuda")
    out = torch.empty_like(query)
    starts = torch.arange(cell.rows + 1, dtype=torch.int32, device="cuda") * cell.tokens
    lens = torch.full((cell.rows,), cell.context, dtype=torch.int32, device="cuda")

    def call(table: torch.Tensor) -> Callable[[], object]:
        return lambda: paged_attention_triton(
            query, keys, values, table, starts, lens, cell.size**-0.5, cell.causal,
            max_query_len=cell.tokens, out=out, **options,
        )  # fmt: skip

    return (call(table) for table in tables)


def graph_seconds(launches: list[Callable[[], object]]) -> tuple[float, float]:
    """Median seconds of one launch over replays of a graph of them all, and (max - min) / median."""
    launches[0]()
    launches = launches * max(1, 8 // len(launches))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in launches:
            launch()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    times = []
    for _ in range(REPLAYS + 2):
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3 / len(launches))
    times = times[2:]
    median = statistics.median(times)
    return median, (max(times) - min(times)) / median


def measure(cell: Cell) -> dict[str, Any]:
    seconds, spread = graph_seconds(list(calls(cell)))
    return {
        **vars(cell),
        "us": round(seconds * 1e6, 2),
        "floor_us": round(cell.floor_s * 1e6, 2),
        "tb_per_s": round(cell.kv_bytes / seconds / 1e12, 3),
        "tflop_per_s": round(cell.operations / seconds / 1e12, 1),
        "spread": round(spread, 3),
    }


def token_operation(name: str, x: torch.Tensor) -> tuple[float, Callable[[int], Callable[[], object]]]:
    """Bytes that ``name`` moves for ``x`` [sets, T, width], and its call on a set."""
    sets, tokens, width = x.shape
    size = x.element_size() * tokens * width
    if name == "rms_norm":
        weight = torch.randn(width, dtype=x.dtype, device="cuda")
        return 4 * size, lambda row: lambda: rms_norm(x[row], weight, 1e-6, x[row - 1])
    if name == "swiglu":
        return 1.5 * size, lambda row: lambda: swiglu(x[row])
    heads = x.view(sets, tokens, -1, 128)
    if name == "rotary":
        cos, sin = torch.randn(2, tokens, 64, device="cuda")
        return 2 * size, lambda row: lambda: rotary(heads[row, :, :-4], heads[row, :, -4:], cos, sin)
    keys, values = heads.chunk(2, dim=2)
    caches = torch.empty(2, sets * tokens // 16 + 1, 16, *keys.shape[2:], dtype=x.dtype, device="cuda")
    slots = torch.randperm(sets * tokens, device="cuda").view(sets, tokens)
    return 2 * size, lambda row: lambda: store_kv(keys[row], values[row], caches[0], caches[1], slots[row])


def measure_tokens(name: str, tokens: int, width: int) -> dict[str, Any]:
    sets = min(64, max(2, -(-COLD_BYTES // (2 * tokens * width))))
    moved, call = token_operation(name, torch.randn(sets, tokens, width, device="cuda").bfloat16())
    seconds, spread = graph_seconds([call(row) for row in range(sets)])
    return {
        "operation": name,
        "tokens": tokens,
        "width": width,
        "us": round(seconds * 1e6, 2),
        "floor_us": round(moved / COPY_CEILING * 1e6, 2),
        "tb_per_s": round(moved / seconds / 1e12, 3),
        "spread": round(spread, 3),
    }


def host_microseconds(cell: Cell) -> float:
    """What one call of the launcher costs the host, nothing awaited."""
    cache = torch.randn(2, 64, 16, cell.heads[1], cell.size, dtype=torch.bfloat16, device="cuda")
    query = torch.randn(1, cell.heads[0], cell.size, dtype=torch.bfloat16, device="cuda")
    table = torch.zeros(1, 4, dtype=torch.int32, device="cuda")
    starts, lens = (torch.tensor(x, dtype=torch.int32, device="cuda") for x in ([0, 1], [64]))
    times = []
    for _ in range(200):
        begin = time.perf_counter()
        paged_attention(query, cache[0], cache[1], table, starts, lens, 0.1, max_query_len=1)
        times.append(time.perf_counter() - begin)
    torch.cuda.synchronize()
    return round(statistics.median(times) * 1e6, 1)


def _warm(cell: Cell) -> None:
    """Compile in a worker process, so that the timing process finds the result in Triton's cache."""
    next(iter(calls(cell)))()
    torch.cuda.synchronize()


def environment() -> dict[str, str]:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    return {
        "card": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": str(torch.version.cuda),
        "python": platform.python_version(),
        "commit": commit or "unknown",
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--commit", help="commit that is measured, where the tree has no git folder")
    options = parser.parse_args()
    cells = DECODE + OTHERS
    with ProcessPoolExecutor(12, mp_context=get_context("spawn")) as pool:
        list(pool.map(_warm, cells))
    report: dict[str, Any] = {"environment": environment(), "paged_attention": []}
    if options.commit:
        report["environment"]["commit"] = options.commit
    report["host_us"] = host_microseconds(DECODE[0])
    report["token_operations"] = [
        measure_tokens(name, t, w) for name, w in TOKEN_CELLS for t in (1, 64, 8192)
    ]
    for cell in cells:
        report["paged_attention"].append(measure(cell))
        options.out.write_text(json.dumps(report, indent=1, default=list))
        print(json.dumps(report["paged_attention"][-1], default=list), flush=True)
    print(report["environment"], "host us", report["host_us"], *report["token_operations"], sep="\n")


if __name__ == "__main__":
    main()
