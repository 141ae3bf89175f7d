"""What a simulation found, as a frozen record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from mmcore.core.output import SchedulerStats
from mmcore.core.simulator_cost import Machine, StepWork


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of seconds, by nearest rank. All 0 where there is nothing to count."""

    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0
    max: float = 0.0

    @classmethod
    def of(cls, values: list[float]) -> Percentiles:
        if not values:
            return cls()
        ranked = sorted(values)
        p50, p90, p99 = (ranked[ceil(share * len(ranked)) - 1] for share in (0.5, 0.9, 0.99))
        return cls(p50, p90, p99, ranked[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationReport:
    """Each request is counted once: finished, aborted, failed or refused (by error code).

    Shares are between 0 and 1, times simulated seconds.
    """

    requests: int
    finished: int
    aborted: int
    failed: Mapping[str, int]
    refused: Mapping[str, int]
    seconds: float
    steps: int
    prompt_tokens: int
    """Of all requests that were taken."""
    generated_tokens: int
    requests_per_second: float
    tokens_per_second: float
    """Generated."""
    time_to_first_token: Percentiles
    latency: Percentiles
    """From arrival to end, of finished requests."""
    device_busy: float
    """Share of the time."""
    batch_filled: float
    """Share of the slots that have a row, in the mean of the steps."""
    budget_filled: float
    """Share of the token budget, in the mean of the steps."""
    workers_busy: float
    prefix_hit_rate: float
    """Share of the prompt tokens."""
    encoder_hit_rate: float
    """Share of the items."""
    preemptions: int
    most_queued: int


class Tally:
    """Counts while the simulation runs."""

    def __init__(self) -> None:
        self.requests = self.finished = self.aborted = 0
        self.failed: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.prompt_tokens = self.generated_tokens = 0
        self.first_tokens: list[float] = []
        self.latencies: list[float] = []
        self.most_queued = 0
        self._steps = self._rows = self._tokens = 0
        self._device_seconds = 0.0

    def count_step(self, work: StepWork, seconds: float) -> None:
        self._steps += 1
        self._rows += work.rows
        self._tokens += work.tokens
        self._device_seconds += seconds

    def report(
        self, machine: Machine, stats: SchedulerStats, seconds: float, worker_share: float
    ) -> SimulationReport:
        ended = self.finished + self.aborted + self.failed.total() + self.refused.total()
        assert ended == self.requests, f"{self.requests} requests came and {ended} were answered"
        limits, steps = machine.limits, max(self._steps, 1)
        return SimulationReport(
            requests=self.requests,
            finished=self.finished,
            aborted=self.aborted,
            failed=dict(self.failed),
            refused=dict(self.refused),
            seconds=seconds,
            steps=self._steps,
            prompt_tokens=self.prompt_tokens,
            generated_tokens=self.generated_tokens,
            requests_per_second=_share(self.finished, seconds),
            tokens_per_second=_share(self.generated_tokens, seconds),
            time_to_first_token=Percentiles.of(self.first_tokens),
            latency=Percentiles.of(self.latencies),
            device_busy=_share(self._device_seconds, seconds),
            batch_filled=self._rows / steps / limits.max_batch_size,
            budget_filled=self._tokens / steps / limits.max_num_tokens,
            workers_busy=worker_share,
            prefix_hit_rate=_share(stats.prefix_hit_tokens, self.prompt_tokens),
            encoder_hit_rate=_share(stats.encoder_hits, stats.encoder_hits + stats.encoder_misses),
            preemptions=stats.preemptions,
            most_queued=self.most_queued,
        )


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
