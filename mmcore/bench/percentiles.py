"""What requests took, and how such seconds are spread."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmcore.request import RequestOutput


@dataclass(frozen=True, slots=True)
class Spread:
    """Median of several runs, the lowest and the highest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{self.median:,.2f} ({self.low:,.2f} to {self.high:,.2f})"


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of one quantity over many requests; between two values it is interpolated."""

    mean: float
    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Percentiles:
        ordered = sorted(values)
        return cls(statistics.fmean(ordered), *(_percentile(ordered, q) for q in (0.5, 0.9, 0.99)))

    def __str__(self) -> str:
        return f"{self.p50:,.1f} / {self.p90:,.1f} / {self.p99:,.1f}"


def _percentile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    return low + (place - math.floor(place)) * (high - low)


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """Seconds of one request: to its first token, between its tokens, to its end."""

    first: float
    between: float
    whole: float
    tokens: int

    @classmethod
    def of(cls, output: RequestOutput, begin: float) -> RequestTimes:
        """``begin`` on the monotonic clock. Raises the request's error."""
        if output.error is not None:
            raise output.error
        times, tokens = output.timings, len(output.token_ids)
        between = (times.finished - times.first_token) / max(1, tokens - 1)
        return cls(times.first_token - begin, between, times.finished - begin, tokens)
