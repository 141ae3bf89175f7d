"""Times kernels on a GPU: launches over cold data in a CUDA graph, beside torch and the roofline."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mmcore.bench.attention_cells import attention_cells
from mmcore.bench.kernel_cell import KNOWN, Call, Ceilings, Cell
from mmcore.bench.report import table
from mmcore.bench.row_cells import row_cells
from mmcore.errors import ConfigError

REPLAYS = 12


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Microseconds of one launch; ``spread`` is (max - min) / median of the replays."""

    kernel: str
    shape: str
    us: float
    spread: float
    torch_us: float | None
    floor_us: float
    """What its bytes or operations need at the card's ceilings."""
    cell: Mapping[str, Any]
    """Fields of the `Cell`."""


def time_kernels(only: Sequence[str] | None) -> Iterator[KernelTime]:
    """Those whose name holds one of ``only``. Raises `ConfigError` without a CUDA device."""
    if not torch.cuda.is_available():
        raise ConfigError("kernels are timed on a GPU, and torch finds no CUDA device here")
    cells = [*attention_cells(), *row_cells()]
    wanted = [cell for cell in cells if only is None or any(part in cell.kernel for part in only)]
    if not wanted:
        names = ", ".join(sorted({cell.kernel for cell in cells}))
        raise ConfigError(f"no kernel is called {' or '.join(only or ())}; there are {names}")
    limits = ceilings()
    for cell in wanted:
        yield time_cell(cell, limits)


def time_cell(cell: Cell, limits: Ceilings) -> KernelTime:
    sides = cell.sides(torch.device("cuda"))
    seconds, spread = graph_seconds(sides.ours)
    theirs = graph_seconds(sides.theirs)[0] if sides.theirs else None
    return KernelTime(
        kernel=cell.kernel,
        shape=cell.shape,
        us=round(1e6 * seconds, 2),
        spread=round(spread, 3),
        torch_us=None if theirs is None else round(1e6 * theirs, 2),
        floor_us=round(1e6 * cell.floor(limits), 2),
        cell=dict(vars(cell)),
    )


def graph_seconds(calls: Sequence[Call]) -> tuple[float, float]:
    """Median seconds of one call over replays of a graph of them all, and (max - min) / median."""
    calls[0]()
    launches = list(calls) * max(1, 8 // len(calls))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in launches:
            launch()
    times = [seconds / len(launches) for seconds in event_seconds(graph.replay, REPLAYS + 2)[2:]]
    median = statistics.median(times)
    return median, (max(times) - min(times)) / median


def event_seconds(call: Call, count: int) -> list[float]:
    """Of each of ``count`` calls, by the device's clock."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    times = []
    for _ in range(count):
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return times


def ceilings() -> Ceilings:
    """Of this card: as measured before, else by a copy of 1 GiB and a product of 8192 x 8192 x 8192."""
    known = KNOWN.get(torch.cuda.get_device_name())
    if known is not None:
        return known
    target, source = torch.empty(2, 1 << 29, dtype=torch.bfloat16, device="cuda")
    copied = min(event_seconds(lambda: target.copy_(source), 8))
    left, right = torch.randn(2, 8192, 8192, device="cuda").bfloat16()
    multiplied = min(event_seconds(lambda: left @ right, 8))
    bandwidth = 2 * (1 << 30) / copied
    return Ceilings(read=bandwidth, copy=bandwidth, math=2 * 8192**3 / multiplied)


def kernel_table(times: Sequence[KernelTime]) -> str:
    """``of roofline`` is the floor over the time."""
    columns = ("kernel", "shape", "us", "torch us", "torch / ours", "floor us", "of roofline")
    rows = []
    for time in times:
        theirs = (
            ("", "") if time.torch_us is None else (f"{time.torch_us:.1f}", f"{time.torch_us / time.us:.2f}")
        )
        share = f"{100 * time.floor_us / time.us:.0f} %"
        rows.append((time.kernel, time.shape, f"{time.us:.1f}", *theirs, f"{time.floor_us:.1f}", share))
    return table(columns, rows)
