"""One sequence's row of a step: blocks to start with, blocks to grow into, tokens to compute.

Who needs a block and finds none takes it from the newest running sequence, which has no row in this step yet
because rows are given in order of turn; the newest itself steps back when it is the one in need.
"""

from __future__ import annotations

from mmcore.core.encoder_planner import EncoderPlanner
from mmcore.core.kv_cache_manager import Claim, KVCacheManager
from mmcore.core.sequence import Sequence
from mmcore.core.sequence_table import SequenceTable
from mmcore.core.step_plan import StepPlan


class RowPlanner:
    """Adds rows to the plan of a step."""

    def __init__(
        self, table: SequenceTable, kv: KVCacheManager, encoder: EncoderPlanner, max_chunk: int
    ) -> None:
        self._table = table
        self._kv = kv
        self._encoder = encoder
        self._max_chunk = max_chunk
        self.prefix_hit_tokens = 0
        self.cross_hits = 0
        self.cross_blocks = 0
        self.begin(StepPlan(step=-1))

    def begin(self, plan: StepPlan) -> None:
        self._plan = plan

    def add_row(self, sequence: Sequence, budget: int, reserved: int = 0) -> int:
        """Gives how many of ``budget`` tokens the row takes; ``reserved`` of them are wanted behind it."""
        if not sequence.blocks and not self._start_running(sequence):
            return 0
        if sequence.must_know:
            return 0
        target = sequence.target
        if sequence.num_computed_tokens >= sequence.last_position or not self._make_writable(
            sequence, target
        ):
            return 0
        end = self._end_of_row(sequence, target, budget, reserved)
        if end == sequence.num_computed_tokens:
            self.note_stall(sequence)
            return 0
        return self._add(sequence, end, samples=end == target)

    def _end_of_row(self, sequence: Sequence, target: int, budget: int, reserved: int) -> int:
        if sequence.is_decoding:
            return target
        start = sequence.num_computed_tokens
        fair = min(target, start + min(max(budget - reserved, 1), self._max_chunk))
        return self._encoder.chunk_end(sequence, fair, start + budget)

    def _add(self, sequence: Sequence, end: int, samples: bool) -> int:
        start = sequence.num_computed_tokens
        self._plan.add_row(sequence, end, samples)
        if sequence.held:
            self._encoder.note_last_uses(sequence, end)
        sequence.num_computed_tokens = end
        if samples:
            sequence.is_decoding = True
            if sequence.request.stop.overlaps:
                sequence.decode_limit = min(
                    len(sequence.blocks) * self._kv.block_size, sequence.last_position
                )
        return end - start

    # ------------------------------------------------------------------ start

    def start_waiting(self, sequence: Sequence) -> bool:
        """Give a sequence from the queue a slot and blocks, or put it back: nobody is preempted for it."""
        claim = self._kv.claim(sequence)
        if claim.num_taken > self._kv.pool.num_available or self._encoder.refuses(sequence):
            self._table.enqueue(sequence)
            return False
        self._table.join(sequence)
        if self._take(sequence, claim):
            return True
        self.step_back(sequence)
        return False

    def _start_running(self, sequence: Sequence) -> bool:
        """It joined ahead of newer ones; they make room for it."""
        while (claim := self._kv.claim(sequence)).num_taken > self._kv.pool.num_available:
            if not self._preempt_newest(sequence):
                return False
        if self._take(sequence, claim):
            return True
        self.note_stall(sequence)
        return False

    def _take(self, sequence: Sequence, claim: Claim) -> bool:
        """Cross states that are not cached need all items in this step."""
        request = sequence.request
        if claim.num_new_cross and not self._holds_all(sequence):
            return False
        self._kv.start(sequence, claim)
        hit_tokens = sequence.num_computed_tokens
        self.prefix_hit_tokens += hit_tokens
        self.cross_hits += bool(claim.cross)
        self.cross_blocks += claim.num_new_cross
        if sequence.index == 0 and sequence.num_generated == 0:
            request.cached_tokens = hit_tokens
        return True

    def _holds_all(self, sequence: Sequence) -> bool:
        prepared = sequence.request.prepared
        assert prepared.cross is not None
        return self._encoder.hold(sequence, tuple(range(len(prepared.items))), then=prepared.cross.work)

    # ------------------------------------------------------------------ room

    def _make_writable(self, sequence: Sequence, stop: int) -> bool:
        """Blocks for tokens up to ``stop`` that nobody else reads. False: it had to step back itself."""
        while (missing := self._kv.num_missing(sequence, stop)) > self._kv.pool.num_available:
            if not self._preempt_newest(sequence):
                return False
        if missing:
            for index, copy in self._kv.make_writable(sequence, stop):
                self._plan.replace_block(sequence, index, copy)
        return True

    def _preempt_newest(self, needy: Sequence) -> bool:
        """False: ``needy`` was the newest."""
        victim = self._table.running[-1]
        self.step_back(victim)
        return victim is not needy

    def step_back(self, sequence: Sequence) -> None:
        """Preempt: everything it holds is let go, it waits for its turn again."""
        if sequence.is_known:
            self._plan.reset_slots.append(sequence.slot)
        self._table.preempt(sequence)

    def note_stall(self, sequence: Sequence) -> None:
        """It got no row. If an item must be preprocessed again, it will not keep others from their blocks."""
        if sequence.request.num_pending:
            self._plan.stalled.append(sequence)
