"""Which tokens are computed next.

There is no prefill phase and no decode phase: each sequence's ``num_computed_tokens`` catches up with its
tokens, under one token budget and one encoder budget a step. One pass in order of turn does it all:

    running, oldest first     one token each, or a chunk; who needs a block may take it from the newest
    waiting, oldest first     while tokens are left: cached prefix, blocks for the whole prompt, first chunk

Turn is (arrival step + priority x ageing_steps): a better priority goes first, and nobody waits for ever.

Steps run in the order in which they are laid out, and ``schedule()`` never asks for a token's value, so
step n + 1 may be laid out before step n has come back. What a step writes is shared with other requests only
after it came back: a failed row leaves nothing behind that anyone could have read.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from mmcore.core.admission import Admission, SchedulerLimits
from mmcore.core.beam_group import beam_group
from mmcore.core.beam_steps import BeamSteps
from mmcore.core.encoder_cache_manager import EncoderCacheManager
from mmcore.core.encoder_planner import EncoderPlanner
from mmcore.core.integrity import check_table
from mmcore.core.kv_cache_manager import KVCacheManager
from mmcore.core.media_layout import MediaLayout, layout_of
from mmcore.core.output import EndedSequence, ModelRunnerOutput, SchedulerOutput, SchedulerStats, StepUpdate
from mmcore.core.row_planner import RowPlanner
from mmcore.core.sequence import ItemState, Place, RequestState, Sequence, StopConditions
from mmcore.core.sequence_table import SequenceTable
from mmcore.core.step_plan import StepPlan
from mmcore.core.step_results import StepResults
from mmcore.errors import EngineError, InputError, MMCoreError
from mmcore.request import FinishReason, PreparedRequest, ReadyRows


class Scheduler:
    """Decides; a `ModelRunner` executes. `schedule` and `update` alternate, or overlap by one step."""

    def __init__(self, limits: SchedulerLimits, kv: KVCacheManager, encoder: EncoderCacheManager) -> None:
        self._limits = limits
        self._kv = kv
        self._encoder = encoder
        self._admission = Admission(limits, kv, encoder)
        self._table = SequenceTable(limits.max_batch_size, kv, encoder)
        self._planner = EncoderPlanner(encoder, limits.encoder_work)
        max_chunk = limits.max_chunk_tokens or limits.max_num_tokens
        self._rows = RowPlanner(self._table, kv, self._planner, max_chunk)
        self._beams = BeamSteps(self._table, kv)
        self._results = StepResults(self._table, kv, encoder, self._beams)
        self._in_flight: deque[StepPlan] = deque()
        self._num_steps = 0
        self._num_added = 0

    # ------------------------------------------------------------------ requests

    def most_answer_tokens(self, request: PreparedRequest) -> int:
        """The longest answer that `add` takes for a request, by the size of the KV cache alone."""
        return self._admission.most_answer_tokens(request)

    def add(self, request: PreparedRequest, stop: StopConditions) -> tuple[int, ...]:
        """Queue a request. Gives the items whose preprocessing should start now; the others are cached.

        Raises an `InputError` for what can never run, `RequestTooLargeError` naming the setting to raise.
        """
        if request.request_id in self._table.requests:
            raise InputError(
                f"request id {request.request_id!r} is in use; choose another until it has ended"
            )
        layout = layout_of(request)
        self._admission.check(request, layout, stop)
        state = self._new_state(request, layout, stop)
        needed = self._items_to_encode(state)
        pending = tuple(i for i in needed if not isinstance(request.items[i].source, ReadyRows))
        for item in needed:
            state.items[item] = ItemState.READY
        for item in pending:
            state.items[item] = ItemState.PENDING
        state.num_pending = len(pending)
        self._table.add(state)
        return pending

    def _new_state(self, request: PreparedRequest, layout: MediaLayout, stop: StopConditions) -> RequestState:
        self._num_added += 1
        beams = beam_group(request.sampling, stop.stop_ids, stop.max_tokens, stop.min_tokens)
        return RequestState(
            prepared=request,
            stop=stop if beams is None else replace(stop, overlaps=False),
            beams=beams,
            order=(self._num_steps + request.priority * self._limits.ageing_steps, self._num_added),
            layout=layout,
            prompt_keys=self._kv.prompt_keys(request, layout),
            items=[ItemState.ABSENT] * len(request.items),
            num_left=request.sampling.num_sequences,
        )

    def _items_to_encode(self, request: RequestState) -> tuple[int, ...]:
        """Items of which neither the rows nor all that is computed from them is cached at this moment."""
        layout, prepared = request.layout, request.prepared
        if self._kv.find_cross(prepared.cross):
            return ()
        hit = self._kv.find_prefix(request.prompt_keys, prepared.num_tokens, layout)
        done = len(hit) * self._kv.block_size
        return tuple(
            item
            for item in layout.groups
            if layout.item_ends.get(item, done + 1) > done and self._encoder.find(layout.keys[item]) is None
        )

    def item_ready(self, request_id: str, item: int) -> None:
        """The runner has the item's arrays. Nothing happens where the request has ended meanwhile."""
        if request_id in self._table.requests:
            self._table.item_is_ready(self._table.requests[request_id], item)

    def item_failed(self, request_id: str, item: int, error: MMCoreError) -> tuple[EndedSequence, ...]:
        """The item can't be had: its request ends with ``error``, and nothing else."""
        request = self._table.requests.get(request_id)
        if request is None or request.items[item] is not ItemState.PENDING:
            return ()
        return tuple(self._table.end_request(request, "error", error))

    def abort(self, request_id: str) -> tuple[EndedSequence, ...]:
        """End a request now. Nothing happens where it has ended already."""
        request = self._table.requests.get(request_id)
        return tuple(self._table.end_request(request, "abort")) if request else ()

    def finish(
        self, request_id: str, sequence: int, reason: FinishReason, stop_reason: int | str | None = None
    ) -> tuple[EndedSequence, ...]:
        """End one sequence because of its text or its family's rule. Tokens in flight are dropped."""
        request = self._table.requests.get(request_id)
        if request is None or sequence >= len(request.sequences) or request.sequences[sequence].has_ended:
            return ()
        if request.beams is not None:
            return tuple(self._table.end_request(request, reason))
        self._table.fork(request.sequences[0])
        return (self._table.end(request.sequences[sequence], reason, stop_reason),)

    # ------------------------------------------------------------------ state

    @property
    def has_unfinished(self) -> bool:
        return bool(self._table.requests)

    @property
    def step_tokens(self) -> int:
        """Token budget of one step."""
        return self._limits.max_num_tokens

    @property
    def has_ready_work(self) -> bool:
        """`schedule` will lay out something, or park a sequence whose item must be preprocessed again.

        With steps in flight it may be that one of them has to come back first.
        """
        table = self._table
        return bool(table.running) or table.waiting.head(len(table.free_slots)) is not None

    def stats(self) -> SchedulerStats:
        table = self._table
        return SchedulerStats(
            steps=self._num_steps,
            preemptions=table.num_preemptions,
            prefix_hit_tokens=self._rows.prefix_hit_tokens,
            encoder_hits=self._planner.num_hits,
            encoder_misses=self._planner.num_misses,
            cross_hits=self._rows.cross_hits,
            cross_blocks=self._rows.cross_blocks,
            running=len(table.running),
            waiting=len(table.waiting) + table.num_parked,
            free_blocks=self._kv.pool.num_available,
            encoder_bytes=self._encoder.used_bytes,
        )

    def check_integrity(self) -> None:
        """Assert what DESIGN promises of pool, caches, slots and sequences. For tests; not cheap."""
        check_table(self._table, self._kv, self._encoder)

    # ------------------------------------------------------------------ the step

    def schedule(self) -> SchedulerOutput:
        """Lay out the next step. At most one step may be in flight."""
        if len(self._in_flight) > 1:
            raise EngineError(
                f"steps {[p.step for p in self._in_flight]} are in flight; update one of them first"
            )
        plan = StepPlan(self._num_steps)
        self._num_steps += 1
        self._planner.begin(plan)
        self._rows.begin(plan)
        self._beams.tell(plan)
        self._join_urgent()
        budget = self._schedule_running(plan)
        self._admit_waiting(budget)
        self._planner.release_used()
        for sequence in plan.stalled:
            self._rows.step_back(sequence)
        self._in_flight.append(plan)
        return plan.output(self._table.take_finished_slots(), self._encoder.take_freed())

    def update(self, output: SchedulerOutput, result: ModelRunnerOutput) -> StepUpdate:
        """Take in what the oldest step in flight gave."""
        if not self._in_flight or self._in_flight[0].step != output.step:
            raise EngineError(f"step {output.step} is not the oldest in flight; update steps in their order")
        return self._results.apply(self._in_flight.popleft(), result)

    def _schedule_running(self, plan: StepPlan) -> int:
        """One row each, in turn; gives the tokens left. A decode row costs a comparison and two appends."""
        running = self._table.running
        num_decoding = sum([sequence.is_decoding for sequence in running])
        budget = self._limits.max_num_tokens
        add_row, add_start = plan.rows.append, plan.row_starts.append
        for sequence in running:
            if budget <= 0:
                break
            start = sequence.num_computed_tokens
            if start < sequence.decode_limit:
                add_row(sequence)
                add_start(start)
                sequence.num_computed_tokens = start + 1
                budget -= 1
            else:
                behind = num_decoding - (len(plan.rows) - len(plan.chunks))
                budget -= self._rows.add_row(sequence, budget, behind)
        return budget

    def _join_urgent(self) -> None:
        """A waiting sequence whose turn is before a running one's joins first: newer ones make room."""
        table = self._table
        while table.running:
            sequence = table.waiting.head(len(table.free_slots))
            if sequence is None or table.running[-1] < sequence or self._must_wait(sequence):
                return
            table.waiting.pop(len(table.free_slots))
            table.join(sequence)

    def _admit_waiting(self, budget: int) -> None:
        """In turn, until tokens, slots or room are used up. Who waits for a step in flight lets others by."""
        table = self._table
        aside: list[Sequence] = []
        while budget > 0 and len(aside) < table.max_batch_size and (sequence := table.next_waiting()):
            if self._must_wait(sequence):
                aside.append(sequence)
            elif self._rows.start_waiting(sequence):
                budget -= self._rows.add_row(sequence, budget)
            elif sequence.place is Place.WAITING:
                break
        for sequence in aside:
            table.enqueue(sequence)

    def _must_wait(self, sequence: Sequence) -> bool:
        """Preempted with its last token in flight or undecided, or another one is writing its cross states or
        much of its beginning."""
        if sequence.is_undecided:
            return True
        if any(sequence in plan.rows for plan in self._in_flight):
            return True
        return self._kv.is_cross_in_flight(sequence.request) or self._kv.is_prefix_in_flight(sequence)
