"""The engine: schedule, submit, update. One thread calls it; `AsyncEngine` is that thread.

With a depth of 1 steps overlap: step n + 1 is laid out and handed to the device before step n has come back,
so the device never waits for the host. The host then knows each token one step late.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import Any, Protocol

from mmcore.adapter import Adapter
from mmcore.core.output import (
    EndedSequence,
    ModelRunnerOutput,
    SchedulerOutput,
    SchedulerStats,
    StepUpdate,
    TokenLogprobs,
)
from mmcore.core.scheduler import Scheduler
from mmcore.core.sequence import StopConditions
from mmcore.errors import ContextLengthError, MMCoreError, plugin_code
from mmcore.inputs.bad_words import bad_words
from mmcore.inputs.pipeline import InputPipeline
from mmcore.item_feeder import ItemFeeder
from mmcore.output_processor import FinishedRequest, OutputProcessor
from mmcore.request import PreparedRequest, ReadyRows, RequestOutput, RequestTimings, Result
from mmcore.runner.model_runner import ModelRunner
from mmcore.runner.pending import PendingStep
from mmcore.runner.sampling import stop_ids_of
from mmcore.sampling_defaults import with_checkpoint_defaults

DEFAULT_MAX_TOKENS = 256
FIRST_STEP_PARTS = 2
"""A first step begins with this part of the tokens that a step takes, or when nothing more comes."""
IDLE_WAIT = 0.05
"""Seconds between looks at deadlines while every request waits for its media."""


class Observers(Protocol):
    """Who is told what happened: `PluginRegistry.observe`."""

    def observe(self, hook: str, **arguments: Any) -> None: ...


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
    tokens_generated: int


class Engine:
    """Requests in, outputs out, one step at a time. ``wake`` is set when a preprocessed item is there."""

    def __init__(
        self,
        *,
        adapter: Adapter,
        max_seq_len: int,
        scheduler: Scheduler,
        runner: ModelRunner,
        pipeline: InputPipeline,
        feeder: ItemFeeder,
        observers: Observers,
        wake: threading.Event,
        depth: int = 0,
        launch: Callable[[], AbstractContextManager[None]] = nullcontext,
        startup: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """``depth``: steps, 0 or 1, that stay with the device while the next one is laid out. ``launch`` is
        entered while one is laid out and handed over. ``startup``: seconds of each stage of the start."""
        self.pipeline = pipeline
        self.startup = startup
        self.wake = wake
        self._adapter = adapter
        self._max_seq_len = max_seq_len
        self._scheduler = scheduler
        self._runner = runner
        self._feeder = feeder
        self._observers = observers
        self._outputs = OutputProcessor(adapter, pipeline.tokenizer)
        self._depth = depth
        self._in_flight: deque[tuple[SchedulerOutput, PendingStep]] = deque()
        self._must_flush = False
        self._unstarted: dict[str, int] = {}
        """Tokens to compute of requests that were not scheduled yet, about."""
        self._worth_a_step = scheduler.step_tokens // FIRST_STEP_PARTS
        self._launch = launch
        self._finished_requests = 0
        self._preprocessed = 0
        self._generated = 0

    # -------------------------------------------------------------- requests

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._outputs

    @property
    def has_unfinished(self) -> bool:
        """Requests or steps are under way, or the runner is still to be told that the last one ended."""
        return len(self._outputs) > 0 or bool(self._in_flight) or self._must_flush

    @property
    def is_running(self) -> bool:
        """Whether any request has been scheduled or a step is in flight: who waits would hold it up."""
        return bool(self._in_flight) or self._scheduler.stats().running > 0

    @property
    def is_worth_a_step(self) -> bool:
        """Requests that were not scheduled yet keep the device busy while others are prepared."""
        return sum(self._unstarted.values()) >= self._worth_a_step

    @property
    def stats(self) -> EngineStats:
        return EngineStats(
            self._scheduler.stats(), self._finished_requests, self._preprocessed, self._generated
        )

    def add(
        self, prepared: PreparedRequest, earlier: FinishedRequest | None = None, arrived: float | None = None
    ) -> None:
        """Queue a request, ``arrived`` on the monotonic clock. Raises `InputError` if it can never run,
        `RequestError` where the family's code fails on it.

        ``earlier`` is the link of its chain before it.
        """
        now = time.monotonic()
        prepared = with_checkpoint_defaults(prepared, self._adapter)
        prepared = replace(prepared, bad_words=bad_words(prepared.sampling, self.pipeline.tokenizer))
        state = self._outputs.begin(prepared, RequestTimings(arrived=arrived or now, prepared=now), earlier)
        wanted = self._scheduler.add(prepared, self._stop_conditions(prepared))
        self._outputs.add(state)
        self._unstarted[prepared.request_id] = _new_tokens(prepared, wanted)
        self._feeder.add(prepared, wanted)

    def abort(self, request_id: str, error: MMCoreError | None = None) -> StepReport:
        """End a request; what it has is its output, with finish reason ``abort``, or its ``error``."""
        ended = self._scheduler.abort(request_id) if error is None else self._fail(request_id, error)
        return StepReport(finished=self._end(ended))

    def output(self, request_id: str) -> RequestOutput:
        """A running request's output so far."""
        return self._outputs.output(request_id)

    def close(self) -> None:
        """End the preprocessing threads."""
        self._feeder.close()

    # -------------------------------------------------------------- the step

    def step(self) -> StepReport:
        """Schedule and submit one step; update with those that have come back by then."""
        failed = self._take_ready_items()
        self._must_flush = False
        with self._launch():
            output = self._scheduler.schedule()
            for request_id, item in output.wanted:
                self._prepare_again(request_id, item)
            self._stamp_scheduled(output)
            self._in_flight.append((output, self._runner.submit(output)))
        idle = output.is_empty and len(self._in_flight) == 1
        changed, ended = self._collect(depth=0 if output.is_empty else self._depth)
        finished = self._end((*failed, *ended))
        self._observers.observe("mmcore_step_finished", stats=self.stats)
        return StepReport(changed, finished, idle=idle and not finished)

    def _collect(self, depth: int) -> tuple[tuple[str, ...], list[EndedSequence]]:
        """Take in what steps gave, oldest first, until ``depth`` are left; the requests that changed."""
        changed: dict[str, None] = {}
        ended: list[EndedSequence] = []
        while len(self._in_flight) > depth:
            output, step = self._in_flight.popleft()
            result = step.result()
            update = self._scheduler.update(output, result)
            self._generated += len(update.token_ids)
            ended += (*update.ended, *self._extend(result, update))
            changed |= dict.fromkeys(name for name in update.request_ids if self._outputs.grows(name))
        return tuple(changed), ended

    def _extend(self, result: ModelRunnerOutput, update: StepUpdate) -> list[EndedSequence]:
        """Give each sequence its new tokens; end those that a stop string or a family's rule ends."""
        now, tokens = time.monotonic(), iter(update.token_ids)
        ended: list[EndedSequence] = []
        columns = zip(update.rows, update.request_ids, update.sequences, update.token_counts, strict=True)
        for row, request_id, sequence, count in columns:
            ids = tuple(islice(tokens, count))
            if self._outputs.state(request_id).timings.first_token == 0.0:
                self._outputs.stamp(request_id, first_token=now)
            try:
                stop = self._outputs.extend(request_id, sequence, ids, result.logprobs.get(row, ()))
            except MMCoreError as error:
                ended += self._fail(request_id, error)
                continue
            if stop is not None:
                ended += self._scheduler.finish(request_id, sequence, "stop", stop)
        return ended

    def _end(self, sequences: Sequence[EndedSequence]) -> tuple[FinishedRequest, ...]:
        """Close sequences; a record for each request of which nothing is left."""
        finished: list[FinishedRequest] = []
        queue = deque(sequences)
        while queue:
            ended = queue.popleft()
            state = self._outputs.state(ended.request_id)
            state.cached_tokens, state.encoded_items = ended.cached_tokens, ended.encoded_items
            state.error = state.error or ended.error
            reason = ended.reason if state.error is None else "error"
            try:
                self._take_hypothesis(ended)
                self._outputs.end(ended.request_id, ended.sequence, reason, ended.stop_reason)
            except MMCoreError as error:
                queue += self._fail(ended.request_id, error)
            if ended.request_done:
                finished.append(self._close(ended.request_id))
        return tuple(finished)

    def _take_hypothesis(self, ended: EndedSequence) -> None:
        """What a beam search came to, all at once."""
        found = ended.hypothesis
        if found is None:
            return
        if self._outputs.state(ended.request_id).timings.first_token == 0.0:
            self._outputs.stamp(ended.request_id, first_token=time.monotonic())
        scores = [TokenLogprobs(logprob, logprob, rank=None) for logprob in found.logprobs]
        self._outputs.extend(ended.request_id, ended.sequence, found.token_ids, scores)

    def _fail(self, request_id: str, error: MMCoreError) -> Sequence[EndedSequence]:
        """The family's code failed on a request: end what still runs of it."""
        self._outputs.state(request_id).error = error
        return self._scheduler.abort(request_id)

    def _close(self, request_id: str) -> FinishedRequest:
        self._outputs.stamp(request_id, finished=time.monotonic())
        output = self._outputs.output(request_id)
        state = self._outputs.pop(request_id)
        self._unstarted.pop(request_id, None)
        self._runner.forget(state.prepared)
        self._feeder.cancel(state.prepared)
        self._must_flush = True
        self._finished_requests += 1
        finished = self._followed(output, state.prepared, state.sequences[0].result)
        self._observers.observe("mmcore_request_finished", output=finished.output)
        return finished

    def _followed(
        self, output: RequestOutput, prepared: PreparedRequest, result: Result | None
    ) -> FinishedRequest:
        """With the next link of its chain, which only a whole answer has."""
        if output.error is not None or result is None or output.outputs[0].finish_reason == "abort":
            return FinishedRequest(output, prepared)
        try:
            with plugin_code(self._adapter.name, "choosing what follows the answer"):
                follow_up = self._adapter.decoding.follow_up(prepared, result)
        except MMCoreError as error:
            return FinishedRequest(replace(output, error=error), prepared)
        return FinishedRequest(output, prepared, result, follow_up)

    def _stamp_scheduled(self, output: SchedulerOutput) -> None:
        now = time.monotonic()
        for new in output.new_requests:
            if new.sequence == 0:
                self._outputs.stamp(new.request.request_id, scheduled=now)
                self._unstarted.pop(new.request.request_id, None)
                self._feeder.scheduled(new.request.request_id)

    # -------------------------------------------------------------- items

    def _prepare_again(self, request_id: str, item: int) -> None:
        """Its cached rows are gone."""
        prepared = self._outputs.state(request_id).prepared
        if isinstance(prepared.items[item].source, ReadyRows):
            self._scheduler.item_ready(request_id, item)
        else:
            self._feeder.add_again(prepared, item)

    def _take_ready_items(self) -> list[EndedSequence]:
        """Hand preprocessed items to the runner; the requests of failed and late ones end."""
        ended: list[EndedSequence] = []
        for request_id, item, data in self._feeder.take():
            if isinstance(data, MMCoreError):
                ended += self._scheduler.item_failed(request_id, item, data)
                continue
            self._preprocessed += 1
            self._runner.feed(request_id, item, data)
            self._scheduler.item_ready(request_id, item)
        return ended

    # -------------------------------------------------------------- limits

    def _stop_conditions(self, prepared: PreparedRequest) -> StopConditions:
        params, defaults = prepared.sampling, self._adapter.decoding.defaults
        room = self._max_seq_len - prepared.num_tokens
        if room < 1:
            raise ContextLengthError(
                f"the prompt has {prepared.num_tokens} tokens; with at least one to answer it must be under "
                f"max_seq_len={self._max_seq_len}: shorten it, or send smaller media"
            )
        wanted = params.max_tokens
        if wanted is None:  # nobody asked for so many: as many as there is memory for
            most = max(1, self._scheduler.most_answer_tokens(prepared))
            wanted = min(defaults.max_tokens or DEFAULT_MAX_TOKENS, most)
        return StopConditions(
            stop_ids=stop_ids_of(params, defaults),
            max_tokens=min(wanted, room),
            min_tokens=params.min_tokens,
            overlaps=self._overlaps(prepared),
        )

    def _overlaps(self, prepared: PreparedRequest) -> bool:
        """Whether its next step may be laid out before the host knows its last token."""
        with plugin_code(self._adapter.name, "making its decoding rules"):
            return not any(rule.needs_host_ids for rule in self._adapter.decoding.logits_rules(prepared))


def _new_tokens(request: PreparedRequest, wanted: Sequence[int]) -> int:
    """About how many tokens of a prompt are to be computed: not those of media that are cached."""
    known = sum(span.length for span in request.ranges if span.item not in wanted)
    return request.num_tokens - known
