"""One run of a workload under torch's profiler: a Chrome trace, and where a step's time goes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmcore.bench.host_time import watched
from mmcore.bench.measure import Work, run_once
from mmcore.bench.report import table
from mmcore.bench.trace import PREFIX, Mechanism, mechanisms
from mmcore.errors import EngineError

if TYPE_CHECKING:
    from mmcore import LLM

MOST_TOKENS = 16
"""Of an answer: steps after that look alike, and a trace grows by megabytes."""
ANSWER_SECONDS = 60
MEANING = {
    "step": "the host's bookkeeping",
    "submit": "laying out a step's inputs",
    "wait": "the host waits for the device",
    "extend": "ids to text, stop conditions",
}


def profile(llm: LLM, work: Work, file: Path, *, seed: int) -> str:
    """The table of one run with short answers; its trace goes into ``file``."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as torch_profile

    engine: Any = llm._engine
    watcher = torch_profile(activities=_activities(ProfilerActivity), acc_events=True)
    prompts = work.prompts(llm, seed, seed)
    with torch_profile(activities=[ProfilerActivity.CPU]):
        pass  # its library is initialised by the thread that has loaded it, or complains
    with ExitStack() as stack:
        stack.enter_context(watched(engine, _marked, *_inner_parts(engine)))
        _on_engine_thread(llm, watcher.start)
        stack.callback(_on_engine_thread, llm, watcher.stop)
        run = run_once(llm, prompts, [min(length, MOST_TOKENS) for length in work.answer_lengths()])
    watcher.export_chrome_trace(str(file))
    events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    return f"{work.requests} requests in {1e3 * run.total:.1f} ms\n{profile_table(mechanisms(events))}"


def profile_table(found: Sequence[Mechanism]) -> str:
    """A line a mechanism, each without those within it, and their sums; the device's, where there is one."""
    columns = {"host ms": [m.host_ms for m in found]}
    if any(m.device_ms for m in found):
        columns["launching ms"] = [m.launch_ms for m in found]
        columns["device ms"] = [m.device_ms for m in found]
    for values in columns.values():
        values.append(sum(values))
    whole = columns["host ms"][-1]
    names = [*((m.name, m.calls, MEANING.get(m.name, "")) for m in found), ("all", "", "")]
    rows = [
        (
            name,
            calls,
            *(f"{value:.2f}" for value in values),
            f"{values[0] / whole:.0%}",
            meaning,
        )
        for (name, calls, meaning), values in zip(names, zip(*columns.values(), strict=True), strict=True)
    ]
    return table(("mechanism", "calls", *columns, "of host", ""), rows)


def _activities(kinds: Any) -> list[Any]:
    import torch

    return [kinds.CPU, kinds.CUDA] if torch.cuda.is_available() else [kinds.CPU]


def _inner_parts(engine: Any) -> list[tuple[Any, str, str]]:
    """What a step is made of on the device."""
    runner = engine._runner
    parts = [
        (runner, "_encode", "encoder"),
        (runner, "_run", "prompt"),
        (runner._sampling, "sample", "sampling"),
    ]
    return [*parts, (runner, "_write_cross", "cross states")] if runner._table.shape.cross else parts


def _marked(part: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """As a range of the trace. What runs one token a row is decode."""
    from torch.profiler import record_function

    def marked(*arguments: Any, **options: Any) -> Any:
        name = "decode" if part == "prompt" and arguments[0].max_query_len == 1 else part
        with record_function(PREFIX + name):
            return call(*arguments, **options)

    return marked


def _on_engine_thread(llm: LLM, call: Callable[[], object]) -> None:
    """The profiler watches the thread that starts it, and is stopped by the same."""
    done, errors = threading.Event(), []

    def run() -> None:
        try:
            call()
        except Exception as error:
            errors.append(error)
        done.set()

    llm._front._post(run)
    if not done.wait(ANSWER_SECONDS):
        raise EngineError(f"the engine's thread did not answer the profiler within {ANSWER_SECONDS} s")
    if errors:
        raise errors[0]
