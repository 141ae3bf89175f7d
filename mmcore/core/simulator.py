"""A discrete-event driver over the real scheduler: time and the device are simulated, nothing else is.

    arrivals, ready items, aborts ──> scheduler.schedule ──> device (cost model) ──> scheduler.update
              events                         now                now + seconds

It answers how a setting behaves under load before a GPU is rented, and it holds what the scheduler promises:
each step with ready work makes progress, each request ends as foreseen, and everything is free when idle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from mmcore.core.block_pool import BlockPool
from mmcore.core.encoder_cache_manager import EncoderCacheManager
from mmcore.core.kv_cache_manager import BlockKey, KVCacheManager
from mmcore.core.output import EndedSequence, ModelRunnerOutput, SchedulerOutput, StepUpdate
from mmcore.core.scheduler import Scheduler
from mmcore.core.simulator_cost import CostModel, Machine
from mmcore.core.simulator_device import SimulatedDevice, SimulatedRequest
from mmcore.core.simulator_events import EventQueue, Job, Workers
from mmcore.core.simulator_report import SimulationReport, Tally
from mmcore.errors import EngineError, InputError, MediaFormatError, MMCoreError, RequestTimeoutError


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorOptions:
    """``overlap``: a step is laid out while the one before it runs."""

    overlap: bool = True
    check_every: int = 500
    """Steps between two calls of ``check_integrity``."""
    keep_live: int | None = None
    """Requests come as soon as fewer than so many are under way, whatever their arrival says."""


@dataclass(slots=True, eq=False)
class _Live:
    """A request under way."""

    request: SimulatedRequest
    arrived: float
    tokens: dict[int, int] = field(default_factory=dict)
    """Generated so far, by sequence."""
    is_aborted: bool = False
    error: MMCoreError | None = None


class Simulator:
    """One run over one machine. Raises `AssertionError` where the scheduler breaks a promise."""

    def __init__(
        self,
        machine: Machine,
        cost: CostModel,
        block_key: BlockKey,
        options: SimulatorOptions = SimulatorOptions(),
    ) -> None:
        self._machine, self._cost, self._options = machine, cost, options
        self._encoder = EncoderCacheManager(machine.encoder_bytes)
        pool = BlockPool(machine.num_blocks, machine.block_size)
        kv = KVCacheManager(pool, block_key, machine.enable_reuse)
        self._scheduler = Scheduler(machine.limits, kv, self._encoder)
        self._device = SimulatedDevice(machine.limits.max_batch_size, self._request)
        self._events = EventQueue()
        self._workers = Workers(cost.preprocess_workers, self._events)
        self._tally = Tally()
        self._live: dict[str, _Live] = {}
        self._in_flight: deque[tuple[SchedulerOutput, ModelRunnerOutput, float]] = deque()
        self._device_free = 0.0

    def run(self, requests: Iterable[SimulatedRequest]) -> SimulationReport:
        """Until each of ``requests``, which come in order of arrival, has had its answer."""
        arrivals = iter(requests)
        coming = self._take_arrivals(arrivals, next(arrivals, None))
        while coming or self._live or self._in_flight:
            if self._scheduler.has_ready_work:
                self._step()
            elif self._in_flight:
                self._update()
            else:
                self._sleep(coming)
            coming = self._take_arrivals(arrivals, coming)
        self._check_idle()
        share = self._workers.busy_seconds / max(self._events.now * self._cost.preprocess_workers, 1e-9)
        return self._tally.report(self._machine, self._scheduler.stats(), self._events.now, share)

    # ------------------------------------------------------------------ arrivals

    def _take_arrivals(
        self, arrivals: Iterator[SimulatedRequest], coming: SimulatedRequest | None
    ) -> SimulatedRequest | None:
        """Those whose time has come; gives the first whose time has not."""
        while coming and self._is_due(coming):
            self._add(coming)
            coming = next(arrivals, None)
        return coming

    def _is_due(self, request: SimulatedRequest) -> bool:
        if self._options.keep_live is None:
            return request.arrival <= self._events.now
        return len(self._live) < self._options.keep_live

    def _add(self, request: SimulatedRequest) -> None:
        prepared, tally, now = request.prepared, self._tally, self._events.now
        tally.requests += 1
        arrived = min(request.arrival, now) if self._options.keep_live is None else now
        try:
            items = self._scheduler.add(prepared, request.stop)
        except InputError as error:
            tally.refused[error.code] += 1
            return
        self._live[prepared.request_id] = _Live(request, arrived)
        tally.prompt_tokens += prepared.num_tokens
        tally.most_queued = max(tally.most_queued, len(self._live))
        for item in items:
            self._preprocess(prepared.request_id, item)
        if request.abort_after is not None:
            self._events.at(now + request.abort_after, lambda: self._abort(prepared.request_id))

    def _abort(self, request_id: str) -> None:
        if request_id in self._live:
            self._live[request_id].is_aborted = True
            self._note_ended(self._scheduler.abort(request_id))

    # ------------------------------------------------------------------ items

    def _preprocess(self, request_id: str, item: int) -> None:
        request, limit = self._request(request_id), self._cost.preprocess_timeout
        seconds = self._cost.item_seconds(request.prepared.items[item]) + request.late_items.get(item, 0.0)
        error: MMCoreError | None = None
        if seconds > limit:
            error = RequestTimeoutError(f"item {item} of {request_id!r} took longer than {limit} s")
        elif item in request.broken_items:
            error = MediaFormatError(f"item {item} of {request_id!r} cannot be decoded")
        self._workers.submit(
            Job(
                min(seconds, limit),
                lambda: self._finish_item(request_id, item, error),
                lambda: request_id in self._live,
            )
        )

    def _finish_item(self, request_id: str, item: int, error: MMCoreError | None) -> None:
        if error is None:
            self._scheduler.item_ready(request_id, item)
        else:
            self._note_ended(self._scheduler.item_failed(request_id, item, error))

    def _request(self, request_id: str) -> SimulatedRequest:
        return self._live[request_id].request

    # ------------------------------------------------------------------ steps

    def _step(self) -> None:
        must_progress, running = not self._in_flight, self._scheduler.stats().running
        output = self._scheduler.schedule()
        if must_progress and not output.row_slots and not output.wanted:
            stepped_aside = self._scheduler.stats().running < running
            assert stepped_aside, f"step {output.step} schedules nothing and there is ready work"
        self._execute(output)
        for request_id, item in output.wanted:
            self._preprocess(request_id, item)
        if output.step % self._options.check_every == 0:
            self._scheduler.check_integrity()
        if len(self._in_flight) > self._options.overlap:
            self._update()

    def _execute(self, output: SchedulerOutput) -> None:
        result, work = self._device.execute(output)
        seconds = self._cost.step_seconds(work)
        self._tally.count_step(work, seconds)
        self._device_free = max(self._device_free, self._events.now) + seconds
        self._in_flight.append((output, result, self._device_free))

    def _update(self) -> None:
        """Wait for the oldest step in flight, and take in what it gave."""
        output, result, end = self._in_flight.popleft()
        self._events.advance(end)
        update = self._scheduler.update(output, result)
        self._note_tokens(update)
        self._note_ended(update.ended)

    def _sleep(self, coming: SimulatedRequest | None) -> None:
        """Nothing can be computed before the next event."""
        arrival = coming.arrival if coming else None
        times = [time for time in (self._events.next_time, arrival) if time is not None]
        if not times:
            raise EngineError(f"{len(self._live)} requests wait and nothing is to come: the scheduler stalls")
        self._events.advance(min(times))

    # ------------------------------------------------------------------ results

    def _note_tokens(self, update: StepUpdate) -> None:
        now = self._events.now
        for request_id, sequence, count in zip(
            update.request_ids, update.sequences, update.token_counts, strict=True
        ):
            live = self._live[request_id]
            if not live.tokens:
                self._tally.first_tokens.append(now - live.arrived)
            live.tokens[sequence] = live.tokens.get(sequence, 0) + count
        self._tally.generated_tokens += len(update.token_ids)

    def _note_ended(self, ended: Iterable[EndedSequence]) -> None:
        for record in ended:
            live = self._live[record.request_id]
            live.error = live.error or record.error
            if record.reason in ("stop", "length"):
                _check_answer(live.request, record, live.tokens.get(record.sequence, 0))
            if record.request_done:
                del self._live[record.request_id]
                self._note_outcome(live)

    def _note_outcome(self, live: _Live) -> None:
        if live.error is not None:
            self._tally.failed[live.error.code] += 1
        elif live.is_aborted:
            self._tally.aborted += 1
        else:
            self._tally.finished += 1
            self._tally.latencies.append(self._events.now - live.arrived)

    def _check_idle(self) -> None:
        """Nothing is held for anybody, in the scheduler and on the device."""
        self._device.execute(output := self._scheduler.schedule())  # tells which slots to forget
        self._scheduler.update(output, ModelRunnerOutput(step=output.step))
        self._scheduler.check_integrity()
        stats = self._scheduler.stats()
        assert (stats.running, stats.waiting) == (0, 0)
        assert stats.free_blocks == self._machine.num_blocks, "KV blocks leak"
        assert self._encoder.fits((), self._machine.encoder_bytes), "encoder entries leak"
        assert self._device.num_known == 0, "the runner keeps slots"


def _check_answer(request: SimulatedRequest, record: EndedSequence, tokens: int) -> None:
    expected = "stop" if request.answer_tokens <= request.max_tokens else "length"
    assert (record.reason, tokens) == (expected, request.expected_tokens), (
        f"sequence {record.sequence} of {record.request_id!r} ends by {record.reason} after {tokens} tokens"
    )
