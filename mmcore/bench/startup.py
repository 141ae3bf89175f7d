"""From ``LLM(...)`` to the first token, by stage, each start in a process of its own.

A second start in one process would find torch imported, the device initialised and kernels loaded.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mmcore.bench.measure import run_once
from mmcore.bench.options import make_llm
from mmcore.bench.percentiles import Spread
from mmcore.bench.workload import Workload
from mmcore.errors import EngineError, MMCoreError


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds of one start."""

    imports: float
    """Of mmcore and torch, before the call of ``LLM``."""
    ready: float
    """From the call of ``LLM(...)`` until it returned."""
    stages: Mapping[str, float]
    """Of the engine, in order; what is left of ``ready`` starts its threads."""
    first_token: float
    """Of a first request, after that."""


def start(call: Mapping[str, Any], work: Workload) -> Start:
    """In this process, which should be new. ``call`` is `engine_options`; ``work`` is answered."""
    begin = time.perf_counter()
    import mmcore.llm  # noqa: F401

    imported = time.perf_counter()
    with make_llm(call) as llm:
        ready = time.perf_counter()
        (times,) = run_once(llm, work.prompts(llm, 1, 1), work.answer_lengths()).times
        stages = dict(llm._engine.startup)
    return Start(imported - begin, ready - imported, stages, times.first)


def start_in_new_process(call: Mapping[str, Any], work: Workload) -> Start:
    """Raises `EngineError` with what the process said where it failed."""
    command = [sys.executable, "-m", __name__, json.dumps([dict(call), asdict(work)])]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode != 0:
        raise EngineError(f"the start failed with exit code {ended.returncode}; its error is above")
    return Start(**json.loads(ended.stdout.splitlines()[-1]))


def startup_table(starts: Sequence[Start]) -> str:
    """Medians in seconds, with the lowest and the highest."""
    rows = [{"import": s.imports, **s.stages, "ready": s.ready, "first token": s.first_token} for s in starts]
    return "\n".join(f"{name:<12}{Spread.of([row[name] for row in rows])} s" for name in rows[0])


def _main() -> int:
    call, work = json.loads(sys.argv[1])
    try:
        print(json.dumps(asdict(start(call, Workload(**work)))))
    except MMCoreError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main())
