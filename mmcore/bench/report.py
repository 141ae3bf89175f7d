"""Figures as a table for people and as JSON, with what they were measured on."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmcore.bench.measure import Figures, Latency
    from mmcore.bench.serve_sim import Served


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Right-aligned, a line a row."""
    cells = [tuple(map(str, row)) for row in (columns, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def throughput_table(figures: Sequence[Figures]) -> str:
    """Medians, with the lowest and the highest run in brackets."""
    columns = (
        "workload",
        "requests",
        "prompt",
        "first ms",
        "ms a token",
        "requests/s",
        "tokens/s",
        "total ms",
    )
    return table(
        columns,
        [
            (
                *(f.workload, f.requests, f.prompt_tokens, f.first_ms, f.token_ms),
                *(f.requests_per_second, f.tokens_per_second, f.total_ms),
            )
            for f in figures
        ],
    )


def latency_table(figures: Latency) -> str:
    quantities = {
        "time to first token": figures.first_ms,
        "time per output token": figures.token_ms,
        "end to end": figures.whole_ms,
    }
    rows = [(name, *(f"{x:,.2f}" for x in (p.mean, p.p50, p.p90, p.p99))) for name, p in quantities.items()]
    title = f"{figures.workload}, {figures.requests} at once, {figures.iterations} times, "
    return (
        f"{title}prompt of {figures.prompt_tokens} tokens\n"
        f"{table(('milliseconds', 'mean', 'p50', 'p90', 'p99'), rows)}"
    )


def serve_table(figures: Sequence[Served]) -> str:
    """Percentiles 50, 90 and 99 of what requests took."""
    columns = ("asked/s", "reached/s", "tokens/s", "first ms p50/p90/p99", "ms a token", "end to end ms")
    return table(
        columns,
        [
            (
                *(_rate(f.request_rate), f"{f.requests_per_second:.2f}", f"{f.tokens_per_second:,.0f}"),
                *(f.first_ms, f.token_ms, f.whole_ms),
            )
            for f in figures
        ],
    )


def _rate(rate: float | None) -> str:
    return "all" if rate is None else f"{rate:g}"


def machine() -> dict[str, Any]:
    """Card, versions and commit."""
    import torch

    cuda = torch.cuda.is_available()
    return {
        "device": torch.cuda.get_device_name() if cuda else platform.processor() or platform.machine(),
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "commit": _commit(),
        **{name: _version(name) for name in ("torch", "triton", "mmcore-runtime")},
    }


def save(path: Path, **content: Any) -> None:
    """``content`` and the machine, as one JSON object."""
    everything: Mapping[str, Any] = {**machine(), **content}
    path.write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Of the tree that is measured, where it has one."""
    folder = Path(__file__).parent
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return found.stdout.strip() or None
