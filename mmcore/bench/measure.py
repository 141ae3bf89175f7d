"""One run of a workload through `LLM.generate`, and the medians of several."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from mmcore.bench.percentiles import Percentiles, RequestTimes, Spread

if TYPE_CHECKING:
    from mmcore import LLM, SamplingParams


class Work(Protocol):
    """Requests that can be made anew: `Workload` or `Dataset`."""

    @property
    def name(self) -> str: ...
    @property
    def requests(self) -> int: ...
    def prompts(self, llm: LLM, seed: int, media_seed: int) -> list[Any]:
        """As many prompts as requests; what was cached under other seeds is of no use to them."""
        ...

    def answer_lengths(self) -> Sequence[int]:
        """Tokens of each request's answer."""
        ...


@dataclass(frozen=True, slots=True)
class Run:
    """One call of ``generate`` for all requests: its seconds, and those of each of them."""

    total: float
    times: tuple[RequestTimes, ...]
    prompt_tokens: int
    """Of the first request."""
    all_prompt_tokens: int
    cached_tokens: int

    @property
    def tokens(self) -> int:
        """New ones, of all answers."""
        return sum(times.tokens for times in self.times)


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
    requests_per_second: Spread
    total_tokens_per_second: Spread
    """Prompts and answers."""


@dataclass(frozen=True, slots=True)
class Latency:
    """What each request took where so many run at once, over all requests of several runs."""

    workload: str
    requests: int
    iterations: int
    prompt_tokens: int
    first_ms: Percentiles
    token_ms: Percentiles
    whole_ms: Percentiles


def greedy(new_tokens: int) -> SamplingParams:
    """Exactly so many tokens."""
    from mmcore import SamplingParams

    return SamplingParams(max_tokens=new_tokens, ignore_eos=True, temperature=0.0)


def run_once(llm: LLM, prompts: list[Any], answer_lengths: Sequence[int]) -> Run:
    """The clock runs from the call of ``generate`` to its return."""
    params = [greedy(length) for length in answer_lengths]
    begin = time.monotonic()
    outputs = llm.generate(prompts, params, use_tqdm=False)
    total = time.monotonic() - begin
    return Run(
        total=total,
        times=tuple(RequestTimes.of(output, begin) for output in outputs),
        prompt_tokens=len(outputs[0].prompt_token_ids),
        all_prompt_tokens=sum(len(output.prompt_token_ids) for output in outputs),
        cached_tokens=sum(output.cached_tokens for output in outputs),
    )


def runs(llm: LLM, work: Work, *, repeats: int, seed: int, warm_up: int = 1, warm: bool = False) -> list[Run]:
    """``warm_up`` runs that are not counted, then ``repeats``, each with new media; ``warm``: the same."""
    found = []
    for n in range(warm_up + repeats):
        prompts = work.prompts(llm, seed + n, seed if warm else seed + n)
        found.append(run_once(llm, prompts, work.answer_lengths()))
    return found[warm_up:]


def measure(llm: LLM, work: Work, *, repeats: int, seed: int, warm: bool = False) -> Figures:
    """The medians of ``repeats`` runs after one that is not counted."""
    return summarise(work.name, work.requests, runs(llm, work, repeats=repeats, seed=seed, warm=warm))


def summarise(name: str, requests: int, found: Sequence[Run]) -> Figures:
    through = [run.tokens + run.all_prompt_tokens for run in found]
    return Figures(
        workload=name,
        requests=requests,
        prompt_tokens=found[-1].prompt_tokens,
        cached_tokens=found[-1].cached_tokens,
        total_ms=Spread.of([1e3 * run.total for run in found]),
        first_ms=Spread.of([1e3 * statistics.median(t.first for t in run.times) for run in found]),
        token_ms=Spread.of([1e3 * statistics.median(t.between for t in run.times) for run in found]),
        tokens_per_second=Spread.of([run.tokens / run.total for run in found]),
        requests_per_second=Spread.of([len(run.times) / run.total for run in found]),
        total_tokens_per_second=Spread.of([n / run.total for n, run in zip(through, found, strict=True)]),
    )


def latency(llm: LLM, work: Work, *, iterations: int, warm_up: int, seed: int) -> Latency:
    found = runs(llm, work, repeats=iterations, seed=seed, warm_up=warm_up)
    times = [times for run in found for times in run.times]
    return Latency(
        workload=work.name,
        requests=work.requests,
        iterations=iterations,
        prompt_tokens=found[-1].prompt_tokens,
        first_ms=Percentiles.of(1e3 * t.first for t in times),
        token_ms=Percentiles.of(1e3 * t.between for t in times),
        whole_ms=Percentiles.of(1e3 * t.whole for t in times),
    )
