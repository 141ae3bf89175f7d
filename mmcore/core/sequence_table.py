"""All requests and sequences, and each one's way between waiting, running, parked and ended.

add ──> waiting <──────────┐
          │ join      preempt (blocks and encoder entries are let go, the slot stays)
          v                │
        running ───────────┴──> parked (an item must be preprocessed; then waiting)
          │ end
          v
        ended
"""

from __future__ import annotations

from bisect import bisect_left, insort

from mmcore.core.encoder_cache_manager import EncoderCacheManager
from mmcore.core.kv_cache_manager import KVCacheManager
from mmcore.core.output import EndedSequence
from mmcore.core.sequence import ItemState, Place, RequestState, Sequence, first_sequence, next_sequence
from mmcore.core.waiting_queue import WaitingQueue
from mmcore.errors import MMCoreError
from mmcore.request import FinishReason


class SequenceTable:
    """Owns slots, the running list (in order) and the waiting queue."""

    def __init__(self, max_batch_size: int, kv: KVCacheManager, encoder: EncoderCacheManager) -> None:
        self._kv = kv
        self._encoder = encoder
        self.max_batch_size = max_batch_size
        self.requests: dict[str, RequestState] = {}
        self.running: list[Sequence] = []
        self.waiting = WaitingQueue()
        self.num_parked = 0
        self.num_preemptions = 0
        self.free_slots = list(range(max_batch_size - 1, -1, -1))
        self._finished_slots: list[int] = []

    # ------------------------------------------------------------------ in

    def add(self, request: RequestState) -> None:
        self.requests[request.prepared.request_id] = request
        self.enqueue(first_sequence(request))

    def enqueue(self, sequence: Sequence) -> None:
        """Its turn comes when its request's items are there."""
        if sequence.request.num_pending:
            sequence.place = Place.PARKED
            self.num_parked += 1
        else:
            sequence.place = Place.WAITING
            self.waiting.push(sequence)

    def item_is_ready(self, request: RequestState, item: int) -> None:
        if request.items[item] is ItemState.PENDING:
            request.num_pending -= 1
        request.items[item] = ItemState.READY
        if request.num_pending == 0:
            for sequence in request.sequences:
                if sequence.place is Place.PARKED:
                    self.num_parked -= 1
                    self.enqueue(sequence)

    # ------------------------------------------------------------------ running

    def next_waiting(self) -> Sequence | None:
        return self.waiting.pop(len(self.free_slots))

    def join(self, sequence: Sequence) -> None:
        """Into the running list, with a slot. It was taken from the queue, or has just begun."""
        if sequence.slot < 0:
            sequence.slot = self.free_slots.pop()
            if sequence.request.beams is not None:
                sequence.request.beams.slots = [self.free_slots.pop() for _ in range(sequence.num_slots - 1)]
        sequence.place = Place.RUNNING
        insort(self.running, sequence)

    def preempt(self, sequence: Sequence) -> None:
        """Back to the queue with its known tokens. Its slot stays if the runner knows it."""
        self._leave_running(sequence)
        if sequence.is_known:
            self.num_preemptions += 1
        else:
            self._free_slot(sequence)
            self._free_kept_slots(sequence.request)
        self.enqueue(sequence)

    def fork(self, parent: Sequence) -> None:
        """Begin the other sequences of ``n``, once. They share the prompt's blocks if that is computed and
        they find a slot; else they start like any other."""
        for _ in range(len(parent.request.sequences), parent.request.prepared.sampling.num_sequences):
            child = next_sequence(parent.request)
            if self.free_slots and parent.blocks and parent.num_generated:
                self._kv.fork(parent, child)
                self.join(child)
            else:
                self.enqueue(child)

    # ------------------------------------------------------------------ out

    def end(
        self,
        sequence: Sequence,
        reason: FinishReason,
        stop_reason: int | str | None = None,
        error: MMCoreError | None = None,
    ) -> EndedSequence:
        if sequence.place is Place.RUNNING:
            self._leave_running(sequence)
        elif sequence.place is Place.PARKED:
            self.num_parked -= 1
        sequence.has_ended = True
        sequence.check_at = 0
        if sequence.place is Place.WAITING:
            self.waiting.skip_ended()
        sequence.place = Place.ENDED
        if sequence.is_known:
            self._finished_slots.append(sequence.slot)
        self._free_slot(sequence)
        return self._record_end(sequence.request, sequence.index, reason, stop_reason, error)

    def end_request(
        self, request: RequestState, reason: FinishReason, error: MMCoreError | None = None
    ) -> list[EndedSequence]:
        """All its sequences, also those that had not begun."""
        request.has_failed = error is not None
        ended = [self.end(s, reason, error=error) for s in request.sequences if not s.has_ended]
        for index in range(len(request.sequences), request.prepared.sampling.num_sequences):
            ended.append(self._record_end(request, index, reason, None, error))
        return ended if request.beams is None else request.beams.outcome(ended)

    def take_finished_slots(self) -> list[int]:
        """Slots the runner may forget, told once."""
        finished, self._finished_slots = self._finished_slots, []
        return finished

    def _record_end(
        self,
        request: RequestState,
        index: int,
        reason: FinishReason,
        stop_reason: int | str | None,
        error: MMCoreError | None,
    ) -> EndedSequence:
        request.num_left -= 1
        request_id = request.prepared.request_id
        if request.num_left == 0:
            del self.requests[request_id]
            self._free_kept_slots(request)
        return EndedSequence(
            request_id=request_id,
            sequence=index,
            reason=reason,
            stop_reason=stop_reason,
            error=error,
            request_done=request.num_left == 0,
            cached_tokens=request.cached_tokens,
            encoded_items=request.encoded_items,
        )

    def _leave_running(self, sequence: Sequence) -> None:
        if self.running[-1] is sequence:
            self.running.pop()
        else:
            del self.running[bisect_left(self.running, sequence)]
        self._kv.release(sequence)
        for entry in sequence.held.values():
            self._encoder.release(entry)
        sequence.forget_progress()

    def _free_kept_slots(self, request: RequestState) -> None:
        if request.beams is not None:
            self.free_slots += request.beams.slots
            request.beams.slots = []

    def _free_slot(self, sequence: Sequence) -> None:
        if sequence.slot >= 0:
            self.free_slots.append(sequence.slot)
            sequence.slot = -1
