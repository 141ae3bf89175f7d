"""Whole jobs on a CPU against transformers: media in, tokens out, the two in turn inside one process.

``OMP_NUM_THREADS=1 python -m benchmarks.cpu --family whisper --threads 1`` (or ``qwen2vl``) writes random
weights at a real shape, pins itself to as many cores as threads, and prints medians and ratios (above 1:
mmcore is faster).
Both sides preprocess, ignore the end of a sequence, and give as many tokens in float32. Decode steps are
timed on media that the caches hold, so that all streams step together.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.cpu_jobs import FAMILIES, Generate, Job

if TYPE_CHECKING:
    from mmcore import LLM


@dataclass(frozen=True, slots=True)
class Ratio:
    """Median of the ratios run by run, the lowest and the highest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, above: Sequence[float], below: Sequence[float]) -> Ratio:
        ratios = [a / b for a, b in zip(above, below, strict=True)]
        return cls(statistics.median(ratios), min(ratios), max(ratios))

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds by ``clock``, run by run: whole jobs, and one decode step of mmcore with all streams in it."""

    streams: int
    ours: Sequence[float]
    theirs: Sequence[float]
    step: Sequence[float]


def measure(
    llm: LLM, job: Job, reference: Generate, streams: int, repeats: int, clock: Callable[[], float]
) -> Measured:
    """One run that is not counted, then ``repeats`` of each side in turn, media new each time."""
    ours, theirs, step = [], [], []
    for n in range(repeats + 1):
        rng = np.random.default_rng([n, streams])
        media = [job.medium(rng) for _ in range(streams)]
        prompts = [job.prompt(number, medium) for number, medium in enumerate(media)]
        ours.append(timed(clock, partial(run_once, llm, prompts, job.new_tokens)))
        theirs.append(timed(clock, partial(reference, media, job.new_tokens)))
        short, whole = (timed(clock, partial(run_once, llm, prompts, c)) for c in (2, job.new_tokens))
        step.append((whole - short) / (job.new_tokens - 2))
        print(f"{streams} at once: {ours[-1]:.2f} s, {theirs[-1]:.2f} s, {step[-1]:.4f} s", file=sys.stderr)
    return Measured(streams, ours[1:], theirs[1:], step[1:])


def run_once(llm: LLM, prompts: Sequence[Any], new_tokens: int) -> None:
    from mmcore.bench import measure as bench

    bench.run_once(llm, list(prompts), [new_tokens] * len(prompts))


def timed(clock: Callable[[], float], call: Callable[[], object]) -> float:
    begin = clock()
    call()
    return clock() - begin


def report(measured: Sequence[Measured]) -> dict[str, Any]:
    """Prints a line for each number of streams; gives the same as data."""
    rows: dict[str, Any] = {}
    for one in measured:
        ratio = Ratio.of(one.theirs, one.ours)
        ours, theirs, step = (statistics.median(x) for x in (one.ours, one.theirs, one.step))
        print(
            f"{one.streams} at once: mmcore {ours:.2f} s, transformers {theirs:.2f} s, ratio {ratio}; "
            f"decode step {1e3 * step:.1f} ms"
        )
        rows[f"{one.streams} at once"] = asdict(one) | {"ratio": asdict(ratio)}
    if len(measured) > 1:
        single, many = measured[0], measured[-1]
        gain = Ratio.of([many.streams / single.streams * s for s in single.step], many.step)
        print(f"decode steps of {many.streams} at once against one after another: {gain}")
        rows["batching"] = asdict(gain)
    return rows


def save(path: Path, key: str, threads: int, rows: Mapping[str, Any]) -> None:
    """Other keys of the file stay."""
    import torch
    import transformers

    results = json.loads(path.read_text()) if path.exists() else {}
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    versions["python"] = platform.python_version()
    results[key] = {"threads": threads, "versions": versions, **rows}
    path.write_text(json.dumps(results, indent=1) + "\n")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", choices=sorted(FAMILIES), required=True)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--new-tokens", type=int, help="default: 100 of Whisper, 128 of Qwen2-VL")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--cpu-time", action="store_true", help="count seconds of work, all threads', on a busy machine"
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "cpu.json")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> None:
    options = parse(arguments)
    if not options.cpu_time:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    clock = time.process_time if options.cpu_time else time.monotonic
    import torch

    from mmcore import LLM, KvCacheConfig

    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        job = FAMILIES[options.family](Path(folder))
        job = replace(job, new_tokens=options.new_tokens or job.new_tokens)
        reference = job.reference(job.folder)
        cache = KvCacheConfig(max_tokens=1 << 15)
        with LLM(
            job.folder,
            dtype="float32",
            device="cpu",
            kv_cache_config=cache,
            preprocess_workers=options.threads,
        ) as llm:
            measured = [measure(llm, job, reference, n, options.repeats, clock) for n in options.streams]
    rows = report(measured)
    name = f"{options.family}, {options.threads} threads{', CPU time' if options.cpu_time else ''}"
    save(options.out, name, options.threads, {"new_tokens": job.new_tokens, **rows})


if __name__ == "__main__":
    main(sys.argv[1:])
