"""One step while it is laid out, and what has to be remembered of it until it comes back."""

from __future__ import annotations

from mmcore.core.encoder_cache_manager import EncoderEntry
from mmcore.core.output import BlockCopy, NewRequest, SchedulerOutput
from mmcore.core.sequence import Sequence


class StepPlan:
    """Columns that grow; `output` freezes them."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.rows: list[Sequence] = []
        self.row_starts: list[int] = []
        self.chunks: list[tuple[int, int, bool]] = []
        """(row, tokens, whether it samples) of those that are not the usual one token and its sample."""

        self.new_requests: list[NewRequest] = []
        self.reset_slots: list[int] = []
        self.advances: list[tuple[int, int, int]] = []
        self.block_slots: list[int] = []
        self.block_ids: list[int] = []
        self.swaps: list[tuple[int, int, int]] = []
        self.copies: list[BlockCopy] = []

        self.encodes: list[tuple[Sequence, int, EncoderEntry]] = []
        self.binds: list[tuple[int, int, int]] = []
        self.last_uses: list[tuple[Sequence, int]] = []
        """(sequence, item) whose last row is computed in this step."""
        self.cross_slots: list[int] = []
        self.cross_blocks: list[list[int]] = []
        self.cross_writes: list[bool] = []
        self.cross_writers: list[tuple[Sequence, list[int]]] = []
        self.wanted: list[tuple[str, int]] = []
        self.stalled: list[Sequence] = []
        """Running sequences that can't go on until an item is preprocessed again."""

    def add_row(self, sequence: Sequence, stop: int, samples: bool) -> None:
        """Compute tokens [num_computed_tokens, stop); what the runner does not know yet is told first."""
        if sequence.num_known_blocks < len(sequence.blocks):
            self._introduce(sequence)
        start = sequence.num_computed_tokens
        self.rows.append(sequence)
        self.row_starts.append(start)
        if not sequence.is_decoding:
            self.chunks.append((len(self.row_starts) - 1, stop - start, samples))

    def advance(self, sequence: Sequence, source: int, token: int, is_moved: bool) -> None:
        """A beam goes on from what ``source`` had; ``is_moved``: with other blocks than before."""
        if is_moved and sequence.is_known:
            self.reset_slots.append(sequence.slot)
        self._meet(sequence)
        self.advances.append((sequence.slot, source, token))

    def replace_block(self, sequence: Sequence, index: int, copy: BlockCopy) -> None:
        self.copies.append(copy)
        if index < sequence.num_known_blocks:
            self.swaps.append((sequence.slot, index, copy.target))

    def _introduce(self, sequence: Sequence) -> None:
        self._meet(sequence)
        if sequence.num_known_blocks == 0 and sequence.cross_blocks:
            self._introduce_cross(sequence)
        new = sequence.blocks[sequence.num_known_blocks :]
        self.block_slots += [sequence.slot] * len(new)
        self.block_ids += new
        sequence.num_known_blocks = len(sequence.blocks)

    def _meet(self, sequence: Sequence) -> None:
        if not sequence.is_known:
            sequence.is_known = True
            self.new_requests.append(NewRequest(sequence.slot, sequence.index, sequence.request.prepared))

    def _introduce_cross(self, sequence: Sequence) -> None:
        self.cross_slots.append(sequence.slot)
        self.cross_blocks.append(sequence.cross_blocks)
        self.cross_writes.append(not sequence.is_cross_written)
        if not sequence.is_cross_written:
            sequence.is_cross_written = True
            self.cross_writers.append((sequence, sequence.cross_blocks))

    def _fill_columns(self) -> None:
        self.row_slots = [sequence.slot for sequence in self.rows]
        self.row_counts = [1] * len(self.rows)
        self.row_samples = [True] * len(self.rows)
        for row, count, samples in self.chunks:
            self.row_counts[row] = count
            self.row_samples[row] = samples

    def output(self, finished_slots: list[int], freed_entries: list[int]) -> SchedulerOutput:
        self._fill_columns()
        advance_slots, advance_sources, advance_ids = _columns(self.advances)
        swap_slots, swap_indices, swap_ids = _columns(self.swaps)
        bind_slots, bind_items, bind_entries = _columns(self.binds)
        return SchedulerOutput(
            step=self.step,
            new_requests=self.new_requests,
            finished_slots=finished_slots,
            reset_slots=self.reset_slots,
            advance_slots=advance_slots,
            advance_sources=advance_sources,
            advance_ids=advance_ids,
            row_slots=self.row_slots,
            row_starts=self.row_starts,
            row_counts=self.row_counts,
            row_samples=self.row_samples,
            block_slots=self.block_slots,
            block_ids=self.block_ids,
            swap_slots=swap_slots,
            swap_indices=swap_indices,
            swap_ids=swap_ids,
            copies=self.copies,
            encode_slots=[sequence.slot for sequence, _, _ in self.encodes],
            encode_items=[item for _, item, _ in self.encodes],
            encode_entries=[entry.number for _, _, entry in self.encodes],
            bind_slots=bind_slots,
            bind_items=bind_items,
            bind_entries=bind_entries,
            freed_entries=freed_entries,
            cross_slots=self.cross_slots,
            cross_blocks=self.cross_blocks,
            cross_writes=self.cross_writes,
            wanted=self.wanted,
        )


def _columns(triples: list[tuple[int, int, int]]) -> tuple[list[int], list[int], list[int]]:
    return [t[0] for t in triples], [t[1] for t in triples], [t[2] for t in triples]
