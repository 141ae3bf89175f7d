"""Which items are encoded in a step, and how far a chunk may go because of them.

A sequence holds an item's rows from the step that first needs them until its last row is computed. Items
whose spans overlap are taken together or not at all, so whoever holds an item can go on without another.
While an older sequence waits for encoder room, no newer one takes any: the oldest gets what is let go.
"""

from __future__ import annotations

from mmcore.core.encoder_cache_manager import EncoderCacheManager, EncoderEntry
from mmcore.core.sequence import ItemState, RequestState, Sequence
from mmcore.core.step_plan import StepPlan


class EncoderPlanner:
    """Takes room in the encoder cache, within ``work`` floating point operations a step."""

    def __init__(self, cache: EncoderCacheManager, work: int) -> None:
        self._cache = cache
        self._work = work
        self.num_hits = 0
        self.num_misses = 0
        self.begin(StepPlan(step=-1))

    def begin(self, plan: StepPlan) -> None:
        self._plan = plan
        self._work_left = self._work
        self._is_refusing = False

    def refuses(self, sequence: Sequence) -> bool:
        """An older sequence has been refused encoder room in this step, so this one need not begin."""
        return self._is_refusing and bool(sequence.request.layout.groups)

    def chunk_end(self, sequence: Sequence, fair: int, possible: int) -> int:
        """Where a chunk that starts at ``num_computed_tokens`` ends.

        At ``fair``, earlier where an item's rows can't be had now, and not inside an atomic item: before it,
        or behind it when the chunk begins with it and ``possible`` allows.
        """
        layout = sequence.request.layout
        start, end = sequence.num_computed_tokens, fair
        for index in range(layout.first_range(start), len(layout.ranges)):
            found, range_end = layout.ranges[index], layout.ends[index]
            if found.offset >= end:
                break
            if layout.atomic[index] and range_end > end:
                fits = found.offset == start and range_end <= possible
                end = range_end if fits else found.offset
            if end <= found.offset or not self.hold(sequence, layout.groups[found.item]):
                return max(start, found.offset)
        return end

    def hold(self, sequence: Sequence, group: tuple[int, ...], then: int = 0) -> bool:
        """Have the rows of all these items for the step, encoded in it or before, and work left for ``then``
        operations on them. All or nothing."""
        ends = sequence.request.layout.item_ends
        done = sequence.num_computed_tokens
        items = [i for i in group if i not in sequence.held and ends.get(i, done + 1) > done]
        if not items and not then:
            return True
        missing = self._missing(sequence.request, items)
        if missing is None or not self._are_ready(sequence.request, missing):
            return False
        if self._is_refusing or not self._affords(sequence.request, items, missing, then):
            self._is_refusing = True
            return False
        keys = sequence.request.layout.keys
        items.sort(
            key=lambda item: self._cache.find(keys[item]) is None
        )  # hits first: no room is made of them
        for item in items:
            sequence.held[item] = self._take(sequence, item)
        self._work_left -= then
        return True

    def _missing(self, request: RequestState, items: list[int]) -> list[int] | None:
        """Items to encode, one for each key. None: another request is just encoding one of them."""
        missing: dict[bytes, int] = {}
        for item in items:
            key = request.layout.keys[item]
            entry = self._cache.find(key)
            if entry is None:
                missing.setdefault(key, item)
            elif entry.writer is not None and entry.writer is not request:
                return None
        return list(missing.values())

    def _are_ready(self, request: RequestState, missing: list[int]) -> bool:
        for item in missing:
            if request.items[item] is ItemState.ABSENT:
                request.items[item] = ItemState.PENDING
                request.num_pending += 1
                self._plan.wanted.append((request.prepared.request_id, item))
        return all(request.items[item] is ItemState.READY for item in missing)

    def _affords(self, request: RequestState, items: list[int], missing: list[int], then: int) -> bool:
        """Room in the cache, and work left in the step; what is larger than any step runs alone."""
        costs = [request.prepared.items[item].cost for item in missing]
        work = then + sum(cost.work for cost in costs)
        if work > self._work_left < self._work:
            return False
        hits = {entry.key: entry for entry in self._entries(request, items)}
        return self._cache.fits(hits.values(), sum(cost.output_bytes for cost in costs))

    def _entries(self, request: RequestState, items: list[int]) -> list[EncoderEntry]:
        entries = (self._cache.find(request.layout.keys[item]) for item in items)
        return [entry for entry in entries if entry is not None]

    def _take(self, sequence: Sequence, item: int) -> EncoderEntry:
        request = sequence.request
        key = request.layout.keys[item]
        entry = self._cache.find(key)
        if entry is not None:
            self._cache.acquire(entry)
            self.num_hits += 1
        else:
            entry = self._encode(sequence, item, key)
        self._plan.binds.append((sequence.slot, item, entry.number))
        return entry

    def _encode(self, sequence: Sequence, item: int, key: bytes) -> EncoderEntry:
        cost = sequence.request.prepared.items[item].cost
        entry = self._cache.reserve(key, cost.output_bytes, sequence.request)
        self._work_left -= cost.work
        self.num_misses += 1
        sequence.request.encoded_items += 1
        self._plan.encodes.append((sequence, item, entry))
        return entry

    def note_last_uses(self, sequence: Sequence, stop: int) -> None:
        """Tokens before ``stop`` are computed now: items that end there are used for the last time."""
        ends = sequence.request.layout.item_ends
        self._plan.last_uses += [(sequence, item) for item in sequence.held if ends.get(item, 0) <= stop]

    def release_used(self) -> None:
        """The step is laid out: nothing is evicted in it any more, so its last uses are safe."""
        for sequence, item in self._plan.last_uses:
            self._cache.release(sequence.held.pop(item))
