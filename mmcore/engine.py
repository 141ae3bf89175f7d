"""The engine: schedule, execute, update. One thread calls it; `AsyncEngine` is that thread."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from mmcore.adapter import Adapter, FollowUp
from mmcore.config import EngineConfig
from mmcore.core.output import ModelRunnerOutput, SchedulerOutput
from mmcore.core.scheduler import Scheduler, SchedulerStats, StepUpdate, StopConditions
from mmcore.errors import ContextLengthError, MMCoreError, RequestTimeoutError
from mmcore.inputs.pipeline import InputPipeline
from mmcore.inputs.pool import PreprocessPool
from mmcore.output_processor import OutputProcessor
from mmcore.request import PreparedRequest, ReadyRows, RequestOutput, RequestTimings, Result
from mmcore.runner.model_runner import ModelRunner
from mmcore.runner.sampling import stop_ids_of

DEFAULT_MAX_TOKENS = 256
IDLE_WAIT = 0.05
"""Seconds between looks at deadlines while every request waits for its media."""


class Observers(Protocol):
    """Who is told what happened: `PluginRegistry.observe`."""

    def observe(self, hook: str, **arguments: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """A request that ended; ``follow_up`` is the next link of its chain."""

    output: RequestOutput
    prepared: PreparedRequest
    result: Result | None = None
    follow_up: FollowUp | None = None


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step changed."""

    changed: tuple[str, ...] = ()
    finished: tuple[FinishedRequest, ...] = ()
    idle: bool = False
    """Nothing was computed: every request waits for its media."""
    wait_seconds: float = IDLE_WAIT


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counters since the engine started."""

    scheduler: SchedulerStats
    requests_finished: int
    items_preprocessed: int


class Engine:
    """Requests in, outputs out, one step at a time."""

    def __init__(
        self,
        *,
        adapter: Adapter,
        config: EngineConfig,
        max_seq_len: int,
        scheduler: Scheduler,
        runner: ModelRunner,
        pipeline: InputPipeline,
        pool: PreprocessPool,
        observers: Observers,
    ) -> None:
        self.pipeline = pipeline
        self._adapter = adapter
        self._timeout = config.preprocess_timeout
        self._max_seq_len = max_seq_len
        self._seeds = random.Random(config.seed)
        self._scheduler = scheduler
        self._runner = runner
        self._pool = pool
        self._observers = observers
        self._outputs = OutputProcessor(adapter.decoding, pipeline.tokenizer)
        self._pending: dict[tuple[str, int], float] = {}
        self._finished_requests = 0
        self._preprocessed = 0

    # -------------------------------------------------------------- requests

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._outputs

    @property
    def has_unfinished(self) -> bool:
        return len(self._outputs) > 0

    @property
    def stats(self) -> EngineStats:
        return EngineStats(self._scheduler.stats, self._finished_requests, self._preprocessed)

    def add(self, prepared: PreparedRequest, previous: Result | None = None) -> None:
        """Queue a request. Raises `InputError` where it can never run."""
        prepared = self._seeded(prepared)
        wanted = self._scheduler.add(prepared, self._stop_conditions(prepared))
        now = time.monotonic()
        self._outputs.add(prepared, RequestTimings(arrived=now, prepared=now), previous)
        for item in wanted:
            self._start_item(prepared, item)

    def abort(self, request_id: str) -> StepReport:
        """End a request; what it has is its output, with finish reason ``abort``."""
        self._scheduler.abort(request_id)
        for index, _ in enumerate(self._outputs.state(request_id).sequences):
            self._outputs.end(request_id, index, "abort")
        return StepReport(finished=(self._close(request_id),))

    def output(self, request_id: str) -> RequestOutput:
        """A running request's output so far."""
        return self._outputs.output(request_id)

    def close(self) -> None:
        """End the preprocessing threads."""
        self._pool.close()

    # -------------------------------------------------------------- the step

    def step(self) -> StepReport:
        """Schedule, execute, update."""
        self._take_ready_items()
        output = self._scheduler.schedule()
        for request_id, item in output.wanted:
            self._start_item(self._outputs.state(request_id).prepared, item)
        result = self._runner.execute(output)
        report = self._report(output, result, self._scheduler.update(output, result))
        self._observers.observe("mmcore_step_finished", stats=self.stats)
        return report
