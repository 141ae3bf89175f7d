"""One run of a workload through `LLM.generate`, and the medians of several."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mmcore.bench.workload import Workload

if TYPE_CHECKING:
    from mmcore import LLM


@dataclass(frozen=True, slots=True)
class Run:
    """Seconds of one run: the whole call, to each first token, and between the tokens of each answer."""

    total: float
    first: tuple[float, ...]
    between: tuple[float, ...]
    tokens: int
    prompt_tokens: int
    cached_tokens: int


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
class Figures:
    """What a workload came to."""

    workload: str
    requests: int
    prompt_tokens: int
    cached_tokens: int
    total_ms: Spread
    first_ms: Spread
    """Time to the first token: of the median request of each run."""
    token_ms: Spread
    """Time between tokens of one answer: of the median request of each run."""
    tokens_per_second: Spread


def run_once(llm: LLM, prompts: list[Any], new_tokens: int) -> Run:
    """The clock runs from the call of ``generate`` to its return."""
    from mmcore import SamplingParams

    params = SamplingParams(max_tokens=new_tokens, ignore_eos=True, temperature=0.0)
    begin = time.monotonic()
    outputs = llm.generate(prompts, params, use_tqdm=False)
    total = time.monotonic() - begin
    for output in outputs:
        if output.error is not None:
            raise output.error
    return Run(
        total=total,
        first=tuple(output.timings.first_token - begin for output in outputs),
        between=tuple(
            (output.timings.finished - output.timings.first_token) / max(1, len(output.token_ids) - 1)
            for output in outputs
        ),
        tokens=sum(len(output.token_ids) for output in outputs),
        prompt_tokens=len(outputs[0].prompt_token_ids),
        cached_tokens=sum(output.cached_tokens for output in outputs),
    )


def measure(llm: LLM, workload: Workload, *, repeats: int, seed: int, warm: bool = False) -> Figures:
    """One run that is not counted, then ``repeats`` with new media each; ``warm``: with the same media."""
    runs = []
    for n in range(repeats + 1):
        media_seed = seed if warm else seed + n
        prompts = workload.prompts(llm, seed + n, media_seed)
        runs.append(run_once(llm, prompts, workload.new_tokens))
    return summarise(workload.name, workload.requests, runs[1:])


def summarise(name: str, requests: int, runs: Sequence[Run]) -> Figures:
    return Figures(
        workload=name,
        requests=requests,
        prompt_tokens=runs[-1].prompt_tokens,
        cached_tokens=runs[-1].cached_tokens,
        total_ms=Spread.of([1e3 * run.total for run in runs]),
        first_ms=Spread.of([1e3 * statistics.median(run.first) for run in runs]),
        token_ms=Spread.of([1e3 * statistics.median(run.between) for run in runs]),
        tokens_per_second=Spread.of([run.tokens / run.total for run in runs]),
    )
