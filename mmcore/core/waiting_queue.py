"""Sequences that could start, in order of turn: heaps, so that a long queue costs nothing a step."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from mmcore.core.sequence import Sequence


class WaitingQueue:
    """Ordered by `Sequence.order`. Sequences that end while queued are skipped when they are met.

    Preempted sequences keep their slot, so they can go on when no slot is free for the others.
    """

    def __init__(self) -> None:
        self._fresh: list[Sequence] = []
        self._preempted: list[Sequence] = []
        self._num_ended = 0

    def __len__(self) -> int:
        return len(self._fresh) + len(self._preempted) - self._num_ended

    def push(self, sequence: Sequence) -> None:
        heappush(self._preempted if sequence.slot >= 0 else self._fresh, sequence)

    def head(self, free_slots: int) -> Sequence | None:
        """Whose turn it is; those that have a slot go on while ``free_slots`` are too few for the first."""
        heap = self._first_heap(free_slots)
        return heap[0] if heap else None

    def pop(self, free_slots: int) -> Sequence | None:
        heap = self._first_heap(free_slots)
        return heappop(heap) if heap else None

    def skip_ended(self) -> None:
        """A queued sequence has ended. Its entry goes when met, or when such entries are the majority."""
        self._num_ended += 1
        if self._num_ended > len(self):
            self._fresh = [s for s in self._fresh if not s.has_ended]
            self._preempted = [s for s in self._preempted if not s.has_ended]
            heapify(self._fresh)
            heapify(self._preempted)
            self._num_ended = 0

    def _first_heap(self, free_slots: int) -> list[Sequence]:
        preempted = self._without_ended(self._preempted)
        if not free_slots:
            return preempted
        fresh = self._without_ended(self._fresh)
        if fresh and fresh[0].num_slots > free_slots:
            return preempted
        return min((heap for heap in (preempted, fresh) if heap), key=lambda heap: heap[0], default=fresh)

    def _without_ended(self, heap: list[Sequence]) -> list[Sequence]:
        while heap and heap[0].has_ended:
            heappop(heap)
            self._num_ended -= 1
        return heap

    def members(self) -> list[Sequence]:
        """In no order; for checks."""
        return [s for s in (*self._fresh, *self._preempted) if not s.has_ended]
