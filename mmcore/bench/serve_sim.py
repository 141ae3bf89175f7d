"""Requests that come as they do at a server: a Poisson process, whatever the engine has got done by then."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mmcore.bench.measure import Work, greedy
from mmcore.bench.percentiles import Percentiles, RequestTimes

if TYPE_CHECKING:
    from mmcore import LLM


@dataclass(frozen=True, slots=True)
class Served:
    """What requests at one rate took. Each one's clock runs from the moment at which it was to arrive, so a
    late start counts."""

    workload: str
    requests: int
    request_rate: float | None
    """Requests a second, as asked; None: all at once."""
    requests_per_second: float
    """Finished, from the first arrival to the last end."""
    tokens_per_second: float
    first_ms: Percentiles
    token_ms: Percentiles
    whole_ms: Percentiles


def arrivals(rate: float, count: int, seed: int) -> list[float]:
    """Seconds after the start at which requests come: gaps are exponential; ``inf`` is all at once."""
    draw = random.Random(seed)
    moments, now = [], 0.0
    for _ in range(count):
        moments.append(now)
        now += draw.expovariate(rate) if rate != float("inf") else 0.0
    return moments


def serve(llm: LLM, work: Work, rate: float, *, seed: int) -> Served:
    """Prompts are made before the first one arrives."""
    prompts = work.prompts(llm, seed, seed)
    moments = arrivals(rate, len(prompts), seed)
    begin = time.monotonic()
    times = _submit(llm, prompts, work.answer_lengths(), [begin + moment for moment in moments])
    seconds = max(moment + t.whole for moment, t in zip(moments, times, strict=True))
    return Served(
        workload=work.name,
        requests=len(times),
        request_rate=None if rate == float("inf") else rate,
        requests_per_second=len(times) / seconds,
        tokens_per_second=sum(t.tokens for t in times) / seconds,
        first_ms=Percentiles.of(1e3 * t.first for t in times),
        token_ms=Percentiles.of(1e3 * t.between for t in times),
        whole_ms=Percentiles.of(1e3 * t.whole for t in times),
    )


def _submit(
    llm: LLM, prompts: Sequence[Any], lengths: Sequence[int], moments: Sequence[float]
) -> list[RequestTimes]:
    handles = []
    try:
        for prompt, length, moment in zip(prompts, lengths, moments, strict=True):
            time.sleep(max(0.0, moment - time.monotonic()))
            handles.append(llm.generate_async(prompt, greedy(length)))
        return [RequestTimes.of(h.result(), moment) for h, moment in zip(handles, moments, strict=True)]
    finally:
        for handle in handles:
            if not handle.done:
                handle.abort()
