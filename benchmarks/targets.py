"""The work that the performance page reports: three models' shapes, random weights, on one GPU.

    python -m benchmarks.targets A --out benchmarks/results/targets-a.json

Each line stands beside what was asked (must, reach) and what vLLM 0.25.1 reached on such a card. Every run
has media that no cache has seen; figures are medians of the runs, with the lowest and the highest.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.shapes import write_shape
from mmcore import LLM, SamplingParams
from mmcore.bench.host_time import host_time
from mmcore.bench.measure import Figures, measure, run_once
from mmcore.bench.percentiles import Spread
from mmcore.bench.report import save
from mmcore.bench.workload import Workload


@dataclass(frozen=True, slots=True)
class Target:
    """``must`` and ``reach`` as asked, ``vllm`` as measured; ``None`` where nobody said."""

    must: float | None
    reach: float | None
    vllm: float | None


PICTURE_TEXT = {
    "A": {
        "W1": Workload(name="W1", picture=(1024, 768), prompt_tokens=1065),
        "W2": Workload(name="W2", requests=64, picture=(448, 448), prompt_tokens=322),
        "W3": Workload(name="W3", requests=64, picture=(448, 448), distinct=8, prompt_tokens=322),
        "T1": Workload(name="T1", prompt_tokens=64),
    },
    "B": {
        "W1": Workload(name="W1", picture=(336, 336), prompt_tokens=640),
        "W2": Workload(name="W2", requests=64, picture=(336, 336), prompt_tokens=640),
        "W3": Workload(name="W3", requests=64, picture=(336, 336), distinct=8, prompt_tokens=640),
    },
    "C": {
        "1 clip": Workload(name="1 clip", seconds=30.0, new_tokens=200),
        "16 clips": Workload(name="16 clips", requests=16, seconds=30.0, new_tokens=200),
    },
}
TARGETS = {
    ("A", "W1", "token_ms"): Target(4.3, 3.9, 4.87),
    ("A", "W1", "first_ms"): Target(50, 40, 99),
    ("A", "W2", "tokens_per_second"): Target(6000, 7000, 4882),
    ("A", "W2", "first_ms"): Target(600, 450, 945),
    ("A", "W3", "tokens_per_second"): Target(9500, 11_000, 7945),
    ("A", "W3 warm", "tokens_per_second"): Target(10_500, 12_500, 9078),
    ("A", "T1", "token_ms"): Target(4.2, 3.8, 4.82),
    ("B", "W1", "token_ms"): Target(4.3, 3.8, 4.70),
    ("B", "W1", "first_ms"): Target(30, 22, 53),
    ("B", "W2", "tokens_per_second"): Target(3700, 4100, 3350),
    ("B", "W3", "tokens_per_second"): Target(5500, 7500, 4837),
    ("C", "1 clip", "token_ms"): Target(1.5, 1.0, 2.50),
    ("C", "16 clips", "token_ms"): Target(2.7, 2.0, 4.09),
    ("C", "16 clips", "tokens_per_second"): Target(4500, 6500, 2814),
    ("A", "tower 1x3996", "ms"): Target(19, 16, 37),
    ("A", "tower 64x1024", "ms"): Target(205, 180, 243),
    ("C", "tower 1 clip", "ms"): Target(5.5, 5.0, 11.6),
    ("C", "tower 16 clips", "ms"): Target(76, 70, 77),
}
TOWERS = {
    "A": {"tower 1x3996": ("W1", 1), "tower 64x1024": ("W2", 64)},
    "B": {"tower 1 picture": ("W1", 1), "tower 64 pictures": ("W2", 64)},
    "C": {"tower 1 clip": ("1 clip", 1), "tower 16 clips": ("16 clips", 16)},
}


def tower(llm: Any, workload: Workload, count: int, repeats: int) -> Spread:
    """Milliseconds of the encoder alone over ``count`` preprocessed items."""
    prompts = workload.scaled(requests=count, distinct=0).prompts(llm, 7, 7)
    items = [llm.preprocess(prompt).items[0] for prompt in prompts]
    runner = llm._engine._runner._encoder
    inputs = [llm._pipeline.preprocess(item) for item in items]
    tensors = runner.send(runner._encoder.collate(inputs, [item.plan for item in items]))
    times = []
    with torch.inference_mode():
        for _ in range(repeats + 2):
            _wait()
            begin = time.perf_counter()
            runner.graphs.run(tensors)
            _wait()
            times.append(1e3 * (time.perf_counter() - begin))
    return Spread.of(times[2:])


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def preprocessing(llm: Any, repeats: int = 3) -> Spread:
    """Milliseconds to prepare and preprocess 64 pictures of 448 x 448 with all cores."""
    workload = Workload(name="pictures", requests=64, picture=(448, 448))
    times = []
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        for n in range(repeats + 1):
            prompts = workload.prompts(llm, n, n)
            begin = time.perf_counter()
            list(pool.map(lambda p: llm._pipeline.preprocess(llm.preprocess(p).items[0]), prompts))
            times.append(1e3 * (time.perf_counter() - begin))
    return Spread.of(times[1:])


def line(model: str, name: str, quantity: str, value: Spread) -> str:
    target = TARGETS.get((model, name, quantity), Target(None, None, None))
    asked = "".join(f"{'' if v is None else f'{v:g}':>9}" for v in (target.must, target.reach, target.vllm))
    return f"{model} {name:<18}{quantity:<20}{value!s:>36}{asked}"


def lines(model: str, figures: Figures) -> list[str]:
    quantities = ("token_ms", "first_ms", "tokens_per_second")
    return [line(model, figures.workload, name, getattr(figures, name)) for name in quantities]


def run(model: str, llm: Any, repeats: int, change: Callable[[Workload], Workload]) -> dict[str, Any]:
    """Prints as it goes, so that a run that is cut short is not lost."""
    found: dict[str, Any] = {"workloads": [], "towers": {}}
    works: Mapping[str, Workload] = {name: change(work) for name, work in PICTURE_TEXT[model].items()}
    for name, (source, count) in TOWERS[model].items():
        spread = tower(llm, works[source], count, repeats)
        found["towers"][name] = asdict(spread)
        print(line(model, name, "ms", spread), flush=True)
    for n, (name, work) in enumerate(works.items()):
        found["workloads"].append(_told(model, measure(llm, work, repeats=repeats, seed=100 * n)))
        if name == "W3":
            warm = work.scaled(name="W3 warm")
            found["workloads"].append(
                _told(model, measure(llm, warm, repeats=repeats, seed=100 * n + 50, warm=True))
            )
    return found


def _whole(work: Workload) -> Workload:
    return work


def _small(work: Workload) -> Workload:
    """To try the script on a CPU."""
    return work.scaled(
        requests=min(3, work.requests), distinct=min(2, work.distinct), new_tokens=4, prompt_tokens=0
    )


def _told(model: str, figures: Figures) -> dict[str, Any]:
    print("\n".join(lines(model, figures)), flush=True)
    return asdict(figures)


def host_tables(llm: Any, works: Mapping[str, Workload]) -> None:
    for name, work in works.items():
        with host_time(llm._engine) as watch:
            measure(llm, work, repeats=1, seed=5000)
        print(f"\nhost time, {name}, two runs\n{watch.table()}", flush=True)


def stages(llm: Any, works: Mapping[str, Workload]) -> None:
    """When requests had come as far as that, milliseconds after the call: the first, the median, the last."""
    params = SamplingParams(max_tokens=2, ignore_eos=True, temperature=0.0)
    for name, work in works.items():
        for attempt in range(3):
            prompts = work.prompts(llm, 7000 + attempt, 7000 + attempt)
            begin = time.monotonic()
            outputs = llm.generate(prompts, params, use_tqdm=False)
            print(f"stages, {name}", end="")
            for stage in ("arrived", "prepared", "scheduled", "first_token"):
                moments = sorted(1e3 * (getattr(o.timings, stage) - begin) for o in outputs)
                middle = moments[len(moments) // 2]
                print(f"; {stage} {moments[0]:.1f}, {middle:.1f}, {moments[-1]:.1f}", end="")
            print(flush=True)


def trace(llm: Any, works: Mapping[str, Workload], rows: int) -> None:
    """Which kernels a run spends the device's time in."""
    from torch.profiler import ProfilerActivity, profile

    for name, work in works.items():
        prompts = work.prompts(llm, 9000, 9000)
        with profile(activities=[ProfilerActivity.CUDA]) as watched:
            run_once(llm, prompts, work.scaled(new_tokens=min(work.new_tokens, 16)).answer_lengths())
        kernels = sorted(watched.key_averages(), key=lambda event: -event.self_device_time_total)
        total = sum(event.self_device_time_total for event in kernels)
        print(f"\nkernels, {name}, {min(work.new_tokens, 16)} tokens, {total / 1e3:.1f} ms")
        for event in kernels[:rows]:
            spent = event.self_device_time_total
            print(
                f"{spent / 1e3:>10.2f} ms {event.count:>6} x {spent / event.count:>9.1f} us  {event.key[:90]}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", choices=PICTURE_TEXT)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="another checkpoint folder, for a trial")
    parser.add_argument("--tiny", action="store_true", help="small workloads, for a trial on a CPU")
    parser.add_argument("--host-time", action="store_true")
    parser.add_argument("--trace", type=int, default=0, metavar="ROWS", help="kernels of each workload")
    arguments = parser.parse_args()
    change = _small if arguments.tiny else _whole
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.folder or write_shape(arguments.model, Path(folder))
        begin = time.monotonic()
        with LLM(path, load_format="dummy") as llm:
            ready = time.monotonic() - begin
            graphs = llm._engine._runner.graphs
            failure = None if graphs is None else graphs.failure
            print(f"ready after {ready:.1f} s; graphs: {failure or 'captured'}", flush=True)
            found = run(arguments.model, llm, arguments.repeats, change)
            if arguments.model != "C":
                spread = preprocessing(llm)
                found["preprocessing_ms"] = asdict(spread)
                print(line(arguments.model, "64 pictures", "preprocessing ms", spread), flush=True)
            works = {name: change(work) for name, work in PICTURE_TEXT[arguments.model].items()}
            if arguments.host_time:
                stages(llm, works)
                host_tables(llm, works)
            if arguments.trace:
                trace(llm, works, arguments.trace)
    if arguments.out is not None:
        save(arguments.out, ready_seconds=ready, graph_failure=failure, **found)


if __name__ == "__main__":
    main()
