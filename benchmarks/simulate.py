"""The scheduler under 100,000 simulated requests: `python benchmarks/simulate.py [--json PATH]`.

First the mixed workload (pictures of six sizes, shared pictures and beginnings, bursts, aborts, late and
broken items, faults, a too-small encoder cache, ``n`` up to 4, three priorities), which may take 120 s on one
core. Then what a request costs with 100, 1,000 and 10,000 others queued: at most 1.5 times as much.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import process_time

from mmcore.core.admission import SchedulerLimits
from mmcore.core.simulator import Simulator, SimulatorOptions
from mmcore.core.simulator_cost import CostModel, Machine
from mmcore.core.simulator_report import SimulationReport
from mmcore.core.simulator_workload import Workload
from mmcore.inputs.hashing import block_key

BOUND_SECONDS = 120.0
BOUND_RATIO = 1.5
TIGHT = Machine(
    limits=SchedulerLimits(
        max_num_tokens=8192, max_batch_size=256, encoder_work=20 * 10**12, max_chunk_tokens=2048
    ),
    num_blocks=6000,
    encoder_bytes=32 << 20,
)
"""Room for about 80 requests of the workload, and for four of its largest pictures."""
SMALL = Workload(
    requests=12_000,
    opening_tokens=(16, 32),
    prompt_tokens=(8, 32),
    answer_tokens=(1, 8),
    picture_rows=(16, 64),
    picture_share=0.3,
)
"""Cheap requests, so that what the queue costs is not hidden."""


@dataclass(frozen=True)
class QueueCost:
    """CPU seconds of the whole simulation, a request."""

    queued: int
    ms_per_request: float


def mixed(requests: int) -> tuple[SimulationReport, float]:
    began = process_time()
    report = Simulator(TIGHT, CostModel(), block_key).run(Workload(requests=requests))
    return report, process_time() - began


def queue_costs(load: Workload = SMALL) -> Iterator[QueueCost]:
    for queued in (100, 1000, 10_000):
        options = SimulatorOptions(keep_live=queued + TIGHT.limits.max_batch_size, check_every=10**9)
        began = process_time()
        Simulator(TIGHT, CostModel(), block_key, options).run(load)
        yield QueueCost(queued, 1000 * (process_time() - began) / load.requests)


def show(report: SimulationReport, seconds: float) -> None:
    refused, failed = dict(report.refused), dict(report.failed)
    print(f"{report.requests} requests in {seconds:.1f} s of CPU: {report.finished} finished,", end=" ")
    print(f"{report.aborted} aborted, failed {failed}, refused {refused}")
    rates = f"{report.requests_per_second:.1f} requests/s, {report.tokens_per_second:.0f} tokens/s"
    print(f"simulated: {report.seconds:.0f} s, {report.steps} steps, {rates}")
    for name in ("time_to_first_token", "latency"):
        found = getattr(report, name)
        print(f"  {name}: p50 {found.p50:.2f}, p90 {found.p90:.2f}, p99 {found.p99:.2f} s")
    shares = ("device_busy", "batch_filled", "budget_filled", "prefix_hit_rate", "encoder_hit_rate")
    print("  " + ", ".join(f"{name} {getattr(report, name):.0%}" for name in shares), end=", ")
    print(f"{report.preemptions} preemptions, at most {report.most_queued} under way")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    report, seconds = mixed(options.requests)
    show(report, seconds)
    costs = []
    for cost in queue_costs():
        costs.append(cost)
        print(f"{cost.queued:6} queued: {cost.ms_per_request:.3f} ms of CPU a request")
    ratio = costs[-1].ms_per_request / costs[0].ms_per_request
    if options.json:
        found = {
            "date": datetime.now(UTC).date().isoformat(),
            "python": platform.python_version(),
            "machine": platform.machine(),
            "bounds": {"cpu_seconds": BOUND_SECONDS, "queue_ratio": BOUND_RATIO},
            "cpu_seconds": round(seconds, 2),
            "report": asdict(report),
            "queue_costs": [asdict(cost) for cost in costs],
            "queue_ratio": round(ratio, 3),
        }
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return int(seconds > BOUND_SECONDS or ratio > BOUND_RATIO)


if __name__ == "__main__":
    sys.exit(main())
