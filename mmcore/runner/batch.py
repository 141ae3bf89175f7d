"""The runner's tables, one row a slot, and a step's flat inputs cut out of them.

With steps in flight a sampled token's place is taken before its value is known: the host fills it in when the
step comes back, and meanwhile the device reads the value from its own table of last tokens.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mmcore.core.output import SchedulerOutput
from mmcore.request import PlaceholderRange, PreparedRequest

Ints = NDArray[np.int64]
Ints32 = NDArray[np.int32]

UNKNOWN = -1
"""A token that was sampled by a step in flight."""


@dataclass(frozen=True, slots=True)
class MergeSlice:
    """Batch positions [position, position + length) take rows [row, row + length) of an item."""

    position: int
    length: int
    slot: int
    item: int
    row: int


@dataclass(frozen=True, eq=False, slots=True)
class StepInputs:
    """One step's tokens, flat: T tokens in R rows, S of which sample."""

    token_ids: Ints  # [T], 0 where an encoder row is merged in, -1 - slot for the slot's last sampled token
    positions: Ints  # [axes, T]
    slot_mapping: Ints  # [T]
    query_starts: Ints32  # [R + 1]
    context_lens: Ints32  # [R]
    block_tables: Ints32  # [R, M]
    max_query_len: int
    merges: tuple[MergeSlice, ...]
    sample_rows: Ints  # [S] rows that sample
    sample_tokens: Ints  # [S] flat index of each one's last token
    sample_slots: Ints  # [S]
    sample_positions: Ints  # [S] index of the token to be sampled, counted from the first generated one
    cross_block_tables: Ints32 | None = None  # [R, Mc]
    cross_lens: Ints32 | None = None  # [R]


@dataclass(frozen=True, eq=False, slots=True)
class SampledPlaces:
    """Where one step's tokens go, [S] each; ``tenancy`` tells a slot's sequence from the next one in it."""

    slots: Ints
    index: Ints
    tenancy: Ints


@dataclass(frozen=True, slots=True)
class TableShape:
    """Sizes of the tables: counts of slots, tokens a sequence, tokens a block, position axes."""

    slots: int
    max_length: int
    block_size: int
    axes: int
    cross: bool = False
    """Whether sequences attend to cross-KV blocks."""

    @property
    def max_blocks(self) -> int:
        return -(-self.max_length // self.block_size)


class BatchTable:
    """Tokens, blocks and positions of every sequence the runner knows."""

    def __init__(self, shape: TableShape) -> None:
        self.shape = shape
        self._tokens = np.zeros((shape.slots, shape.max_length + 1), np.int64)
        self._blocks = np.zeros((shape.slots, shape.max_blocks), np.int32)
        self._block_counts = [0] * shape.slots
        self._deltas = np.zeros(shape.slots, np.int64)
        self._prompt_lengths = np.zeros(shape.slots, np.int64)
        self._lengths = np.zeros(shape.slots, np.int64)
        self._tenancy = np.zeros(shape.slots, np.int64)
        self._cross_blocks = np.zeros((shape.slots, 0), np.int32)
        self._cross_counts = np.zeros(shape.slots, np.int64)
        self._cross_lengths = np.zeros(shape.slots, np.int32)
        self._requests: dict[int, PreparedRequest] = {}
        self._range_ends: dict[int, list[int]] = {}

    def add(self, slot: int, request: PreparedRequest) -> None:
        """Fill the slot's row with a prompt. Placeholder ids are never looked up: they become 0."""
        count = request.num_tokens
        row = self._tokens[slot]
        row[:count] = request.token_ids
        for span in request.ranges:
            row[span.offset : span.offset + span.length] = 0
        self._lengths[slot] = self._prompt_lengths[slot] = count
        self._deltas[slot] = request.positions.delta if request.positions else 0
        self._requests[slot] = request
        self._range_ends[slot] = [span.offset + span.length for span in request.ranges]
        self._block_counts[slot] = 0
        self._cross_lengths[slot] = self._cross_counts[slot] = 0
        self._tenancy[slot] += 1

    def remove(self, slot: int) -> None:
        del self._requests[slot], self._range_ends[slot]

    def reset(self, slot: int) -> None:
        """Forget the blocks of a preempted sequence, keep its tokens."""
        self._block_counts[slot] = 0

    def request(self, slot: int) -> PreparedRequest:
        return self._requests[slot]

    def generated(self, slot: int) -> Ints:
        """Token ids sampled so far, [n]; the last one is `UNKNOWN` while its step is in flight."""
        row: Ints = self._tokens[slot, self._prompt_lengths[slot] : self._lengths[slot]]
        return row

    def place_blocks(self, output: SchedulerOutput) -> None:
        counts = self._block_counts
        for slot, block in zip(output.block_slots, output.block_ids, strict=True):
            self._blocks[slot, counts[slot]] = block
            counts[slot] += 1
        for slot, index, block in zip(output.swap_slots, output.swap_indices, output.swap_ids, strict=True):
            self._blocks[slot, index] = block

    def place_cross_blocks(self, slot: int, blocks: Sequence[int], length: int) -> None:
        missing = len(blocks) - self._cross_blocks.shape[1]
        if missing > 0:
            self._cross_blocks = np.pad(self._cross_blocks, ((0, 0), (0, missing)))
        self._cross_blocks[slot, : len(blocks)] = blocks
        self._cross_counts[slot] = len(blocks)
        self._cross_lengths[slot] = length

    def cross_slot_mapping(self, slot: int) -> Ints:
        """Cache slot of each cross state, [cross length]."""
        index = np.arange(self._cross_lengths[slot], dtype=np.int64)
        size = self.shape.block_size
        mapping: Ints = self._cross_blocks[slot][index // size].astype(np.int64) * size + index % size
        return mapping

    def advance(self, slots: Sequence[int], sources: Sequence[int], token_ids: Sequence[int]) -> None:
        """The slots' tokens become those of their sources and one more each, all at once."""
        lengths = self._lengths[list(sources)]
        self._tokens[list(slots)] = self._tokens[list(sources)]
        self._tokens[list(slots), lengths] = token_ids
        self._lengths[list(slots)] = lengths + 1

    def reserve(self, slots: Ints) -> SampledPlaces:
        """A place behind each slot's tokens for one that a step in flight samples."""
        places = SampledPlaces(slots, self._lengths[slots], self._tenancy[slots])
        self._tokens[slots, places.index] = UNKNOWN
        self._lengths[slots] += 1
        return places

    def fill(self, places: SampledPlaces, token_ids: Ints) -> None:
        """The step has come back. Slots that belong to another sequence by now are left alone."""
        kept = self._tenancy[places.slots] == places.tenancy
        self._tokens[places.slots[kept], places.index[kept]] = token_ids[kept]

    def lay_out(self, output: SchedulerOutput) -> StepInputs:
        """Cut one step's inputs out of the tables."""
        slots = np.asarray(output.row_slots, np.int64)
        starts = np.asarray(output.row_starts, np.int64)
        longest = max(output.row_counts)
        if longest == 1:
            owner, index, ends = slots, starts, starts + 1
            query_starts = np.arange(len(slots) + 1)
        else:
            counts = np.asarray(output.row_counts, np.int64)
            ends, query_starts = starts + counts, np.concatenate(([0], np.cumsum(counts)))
            row = np.repeat(np.arange(len(slots)), counts)
            owner, index = slots[row], np.arange(query_starts[-1]) - query_starts[row] + starts[row]
        size = self.shape.block_size
        samples = np.flatnonzero(np.asarray(output.row_samples, bool))
        width = int(-(-ends.max() // size))
        cross = self._cross_tables(slots) if self.shape.cross else (None, None)
        token_ids = self._tokens[owner, index]
        in_prompt = np.flatnonzero(starts < self._prompt_lengths[slots]).tolist()
        return StepInputs(
            token_ids=np.where(token_ids == UNKNOWN, -1 - owner, token_ids),
            positions=self._positions(output, in_prompt, query_starts, owner, index),
            slot_mapping=self._blocks[owner, index // size].astype(np.int64) * size + index % size,
            query_starts=query_starts.astype(np.int32),
            context_lens=ends.astype(np.int32),
            block_tables=self._blocks[slots, :width],
            max_query_len=longest,
            merges=tuple(self._merges(output, in_prompt, query_starts)),
            sample_rows=samples,
            sample_tokens=query_starts[samples + 1] - 1,
            sample_slots=slots[samples],
            sample_positions=ends[samples] - self._prompt_lengths[slots[samples]],
            cross_block_tables=cross[0],
            cross_lens=cross[1],
        )

    def _cross_tables(self, slots: Ints) -> tuple[Ints32, Ints32]:
        width = self._cross_counts[slots].max()
        return self._cross_blocks[slots, :width], self._cross_lengths[slots]

    def _positions(
        self, output: SchedulerOutput, in_prompt: list[int], query_starts: Ints, owner: Ints, index: Ints
    ) -> Ints:  # [axes, T]
        """Prompt positions are stored whole at admission and only sliced here; later ones are i + delta."""
        positions = np.empty((self.shape.axes, len(index)), np.int64)
        positions[...] = index + self._deltas[owner]
        for row in in_prompt:
            stored, start = self._requests[output.row_slots[row]].positions, output.row_starts[row]
            if stored is None:
                continue
            stop = min(start + output.row_counts[row], stored.values.shape[1])
            first = query_starts[row]
            positions[:, first : first + stop - start] = stored.values[:, start:stop]
        return positions

    def _merges(self, output: SchedulerOutput, in_prompt: list[int], query_starts: Ints) -> list[MergeSlice]:
        merges: list[MergeSlice] = []
        for row in in_prompt:
            slot, start, count = output.row_slots[row], output.row_starts[row], output.row_counts[row]
            ends = self._range_ends[slot]
            if not ends or start >= ends[-1]:
                continue
            ranges = self._requests[slot].ranges[bisect_right(ends, start) :]
            merges += _overlaps(ranges, slot, start, start + count, int(query_starts[row]))
        return merges


def _overlaps(
    ranges: Sequence[PlaceholderRange], slot: int, start: int, stop: int, base: int
) -> list[MergeSlice]:
    """The parts of ``ranges`` within tokens [start, stop), whose first token has batch position ``base``."""
    merges: list[MergeSlice] = []
    for span in ranges:
        if span.offset >= stop:
            break
        first, last = max(span.offset, start), min(span.offset + span.length, stop)
        skipped = first - span.offset
        merges.append(MergeSlice(base + first - start, last - first, slot, span.item, span.row + skipped))
    return merges
