"""Moves the sequences of beam searches on.

A beam's step gives candidates instead of a token. When every beam of a group has given its own, the policy
decides, and each sequence becomes a copy of one of them with one more token: blocks are shared and copied on
the first write, as in any fork. Beams are preempted one by one; a beam that has lost its blocks, or whose
parent has, computes them again.
"""

from __future__ import annotations

from collections.abc import Sequence as Column
from dataclasses import dataclass

from mmcore.core.beam_group import BeamGroup
from mmcore.core.beam_search import Candidates, Move
from mmcore.core.kv_cache_manager import KVCacheManager
from mmcore.core.output import EndedSequence
from mmcore.core.sequence import Place, RequestState, Sequence, next_sequence
from mmcore.core.sequence_table import SequenceTable
from mmcore.core.step_plan import StepPlan


@dataclass(frozen=True, slots=True)
class _Parent:
    """What a beam was before the group moved on."""

    slot: int
    token_ids: list[int]
    block_keys: list[bytes]
    blocks: list[int]
    """Empty where it was preempted."""
    cross_blocks: list[int]
    num_computed_tokens: int
    num_registered: int


class BeamSteps:
    """Beams in and out of the scheduler's tables."""

    def __init__(self, table: SequenceTable, kv: KVCacheManager) -> None:
        self._table = table
        self._kv = kv
        self._moved: list[tuple[Sequence, int, int, bool]] = []
        """(sequence, source slot, token, whether its blocks are others now), for the runner to be told."""

    def report(self, sequence: Sequence, computed: int, candidates: Candidates) -> list[EndedSequence]:
        """A beam's step has come back; the sequences that ended if the search is over with it."""
        request = sequence.request
        group = request.beams
        assert group is not None
        if computed >= sequence.register_at:
            self._kv.register(sequence, computed)
        group.candidates[sequence.index] = candidates
        sequence.is_undecided = True
        if len(group.candidates) < len(request.sequences):
            return []
        return self._decide(request, group)

    def tell(self, plan: StepPlan) -> None:
        """What was decided since the last step."""
        for sequence, source, token, is_moved in self._moved:
            if not sequence.has_ended:
                plan.advance(sequence, source, token, is_moved)
        self._moved.clear()

    def _decide(self, request: RequestState, group: BeamGroup) -> list[EndedSequence]:
        moves = group.search.advance([group.candidates[i] for i in range(len(request.sequences))])
        group.candidates.clear()
        if not moves:
            return self._table.end_request(request, "length")
        parents = [_parent(sequence) for sequence in request.sequences]
        for move in moves[len(parents) :]:
            child = next_sequence(request, group.slots.pop())
            if parents[move.parent].blocks:
                self._table.join(child)
            else:
                self._table.enqueue(child)
        self._hold(request, moves, parents)
        for sequence, move in zip(request.sequences, moves, strict=True):
            self._move(sequence, move, parents[move.parent], len(parents))
        self._note_shared(request, moves)
        return []

    def _hold(self, request: RequestState, moves: Column[Move], parents: Column[_Parent]) -> None:
        """References for all that will be shared, before anything is let go."""
        for sequence, move in zip(request.sequences, moves, strict=True):
            if self._takes_blocks(sequence, move, len(parents)):
                self._kv.pool.retain(parents[move.parent].blocks)
                self._kv.pool.retain(parents[move.parent].cross_blocks)

    def _takes_blocks(self, sequence: Sequence, move: Move, num_parents: int) -> bool:
        stays = move.parent == sequence.index < num_parents
        return sequence.place is Place.RUNNING and not stays

    def _move(self, sequence: Sequence, move: Move, parent: _Parent, num_parents: int) -> None:
        takes = self._takes_blocks(sequence, move, num_parents)
        sequence.is_undecided = False
        sequence.token_ids = [*parent.token_ids, move.token_id]
        sequence.block_keys = list(parent.block_keys)
        self._moved.append((sequence, parent.slot, move.token_id, takes))
        if not takes:
            return
        self._kv.release(sequence)
        sequence.forget_progress()
        if parent.blocks:
            self._share(sequence, parent)
        else:
            self._table.preempt(sequence)

    def _share(self, sequence: Sequence, parent: _Parent) -> None:
        sequence.blocks, sequence.cross_blocks = list(parent.blocks), list(parent.cross_blocks)
        sequence.num_computed_tokens = parent.num_computed_tokens
        sequence.is_decoding = True
        self._kv.expect(sequence, parent.num_registered)

    def _note_shared(self, request: RequestState, moves: Column[Move]) -> None:
        parents = [move.parent for move in moves]
        for sequence, move in zip(request.sequences, moves, strict=True):
            sequence.is_forked = sequence.is_forked or parents.count(move.parent) > 1


def _parent(sequence: Sequence) -> _Parent:
    return _Parent(
        sequence.slot,
        sequence.token_ids,
        sequence.block_keys,
        sequence.blocks,
        sequence.cross_blocks,
        sequence.num_computed_tokens,
        sequence.num_registered,
    )
