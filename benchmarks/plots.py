"""Draw the plots of the performance page from the results that ``mmcore bench ... --json`` has written.

    python -m benchmarks.plots [--results benchmarks/results] [--out docs/plots]

One SVG for each file of ``throughput`` (tokens a second over requests at once), ``serve-sim`` (time to first
token over the rate of requests) and ``kernels`` (bandwidth of decode attention over the context).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from mmcore.bench.attention_cells import PagedCell
from mmcore.bench.kernel_cell import KNOWN

COLOURS = ("#1b6ca8", "#d1495b", "#2e9e6b", "#c98a1b")
INK, GRID = "#2b2b2b", "#dddddd"
STYLE: dict[Any, Any] = {
    "font.size": 10, "axes.edgecolor": INK, "axes.labelcolor": INK, "text.color": INK, "xtick.color": INK,
    "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "mmcore",
}  # fmt: skip
THOUSANDS = FuncFormatter(lambda value, _: f"{value:,.10g}")

Rows = Sequence[Mapping[str, Any]]
Draw = Callable[[Axes, Rows, str], None]


def throughput(axes: Axes, rows: Rows, device: str) -> None:
    """Median of the runs, and from the lowest to the highest."""
    counts = [row["requests"] for row in rows]
    speeds = [row["tokens_per_second"] for row in rows]
    axes.fill_between(
        counts, [s["low"] for s in speeds], [s["high"] for s in speeds], color=COLOURS[0], alpha=0.2, lw=0
    )
    axes.plot(counts, [s["median"] for s in speeds], "o-", color=COLOURS[0])
    axes.set_title(f"Tokens a second over batch: {device}")
    _doubling(axes, counts)
    axes.set_xlabel("requests at once")
    axes.set_ylabel("new tokens a second")
    axes.yaxis.set_major_formatter(THOUSANDS)
    axes.set_ylim(bottom=0)


def serve_sim(axes: Axes, rows: Rows, device: str) -> None:
    """Percentiles 50, 90 and 99; requests that come all at once have no rate to stand at."""
    rows = [row for row in rows if row["request_rate"] is not None]
    rates = [row["request_rate"] for row in rows]
    for name, colour in zip(("p50", "p90", "p99"), COLOURS, strict=False):
        axes.plot(rates, [row["first_ms"][name] for row in rows], "o-", color=colour, label=name)
    axes.set_title(f"Time to first token over load: {device}")
    axes.set_xlabel("requests a second (Poisson arrivals)")
    axes.set_ylabel("time to first token, ms")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(THOUSANDS)
    axes.set_xlim(left=0)
    axes.legend(frameon=False)


def kernels(axes: Axes, rows: Rows, device: str) -> None:
    """Decode attention of the first shape at 16 positions a block, a line for each number of rows."""
    found: dict[int, dict[int, float]] = {}
    for row in rows:
        if row["kernel"] != "paged_attention":
            continue
        cell = PagedCell(**{**row["cell"], "heads": tuple(row["cell"]["heads"])})
        if cell == PagedCell(cell.rows, 1, cell.context):
            found.setdefault(cell.rows, {})[cell.context] = cell.kv_bytes / row["us"] / 1e6
    for (count, line), colour in zip(sorted(found.items()), COLOURS, strict=False):
        label = f"{count} row{'s' if count > 1 else ''}"
        axes.plot(list(line), list(line.values()), "o-", color=colour, label=label)
    axes.set_title(f"Decode attention, bandwidth over context: {device}")
    _doubling(axes, sorted({context for line in found.values() for context in line}))
    axes.set_xlabel("context, tokens (28 query and 4 KV heads of 128, bfloat16)")
    axes.set_ylabel("keys and values read, TB/s")
    axes.set_ylim(bottom=0)
    if device in KNOWN:
        limit = KNOWN[device].read / 1e12
        axes.axhline(limit, color=INK, lw=1, ls="--")
        axes.annotate(
            f"best read-only kernel, {limit:g}", (0, limit), (4, 3), xycoords=("axes fraction", "data"),
            textcoords="offset points", fontsize=9,
        )  # fmt: skip
        axes.set_ylim(top=1.12 * limit)
    axes.legend(frameon=False, loc="lower right")


DRAWN: Mapping[str, Draw] = {"throughput": throughput, "serve-sim": serve_sim, "kernels": kernels}


def _doubling(axes: Axes, ticks: Sequence[int]) -> None:
    """An axis on which twice as much is one step."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())


def draw(file: Path, out: Path) -> bool:
    """Whether the results are of a kind that is drawn."""
    content = json.loads(file.read_text(encoding="utf-8"))
    kind = DRAWN.get(content.get("command", "")) if isinstance(content, dict) else None
    if kind is None:
        return False
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 4.2), layout="constrained")
        axes = figure.add_subplot()
        axes.grid(color=GRID, lw=0.8)
        axes.set_axisbelow(True)
        kind(axes, content["rows"], content["device"])
        model = content.get("asked", {}).get("model")
        if model is not None:
            axes.set_title(f"{axes.get_title()}, {model}")
        figure.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None, dpi=110)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--out", type=Path, default=Path("docs/plots"))
    parser.add_argument("--format", choices=("svg", "png"), default="svg")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for file in sorted(arguments.results.glob("*.json")):
        target = arguments.out / f"{file.stem}.{arguments.format}"
        if draw(file, target):
            print(target)


if __name__ == "__main__":
    main()
