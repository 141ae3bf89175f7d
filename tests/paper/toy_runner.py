"""Executes a `SchedulerOutput` with hashes in place of tensors, through block tables and cache entries.

A KV entry is a hash of the entry before it, of its token or row, its position and the cross states; a sampled
token is a hash of every entry, read through the block table. So a wrong block, row, position or copy gives
other tokens, and a right schedule gives tokens that are a function of the request alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mmcore.adapter import Adapter
from mmcore.core.output import ModelRunnerOutput, NewRequest, SchedulerOutput, TokenLogprobs
from mmcore.request import EncoderInput, PreparedRequest, ReadyRows

FIRST_LETTER, LETTERS = ord("a"), 26


@dataclass
class Table:
    """Positions 0, 1, ... of one sequence, in blocks of the one KV store."""

    kv: dict[tuple[int, int], int]
    block_size: int
    blocks: list[int] = field(default_factory=list)

    def write(self, index: int, value: int) -> None:
        self.kv[self.blocks[index // self.block_size], index % self.block_size] = value

    def read(self, index: int) -> int:
        return self.kv[self.blocks[index // self.block_size], index % self.block_size]

    def read_all(self, length: int) -> int:
        return hash(tuple(self.read(index) for index in range(length)))


@dataclass
class Slot:
    request: PreparedRequest
    sequence: int
    tokens: list[int]
    own: Table
    cross: Table
    rows: dict[int, list[int]] = field(default_factory=dict)
    """By item: the rows it is bound to."""


@dataclass(frozen=True)
class Sample:
    token: int
    logprobs: TokenLogprobs


@dataclass(frozen=True)
class Done:
    """A step that has come back at once."""

    output: ModelRunnerOutput

    def result(self) -> ModelRunnerOutput:
        return self.output


class ToyRunner:
    def __init__(self, adapter: Adapter, block_size: int) -> None:
        self.adapter, self.block_size = adapter, block_size
        self.slots: dict[int, Slot] = {}
        self.inputs: dict[tuple[str, int], EncoderInput] = {}
        self.entries: dict[int, list[int]] = {}
        self.kv: dict[tuple[int, int], int] = {}

    def feed(self, request_id: str, item: int, encoder_input: EncoderInput) -> None:
        self.inputs[request_id, item] = encoder_input

    def forget(self, request: PreparedRequest) -> None:
        for item in range(len(request.items)):
            self.inputs.pop((request.request_id, item), None)

    def submit(self, out: SchedulerOutput) -> Done:
        return Done(self.execute(out))

    def execute(self, out: SchedulerOutput) -> ModelRunnerOutput:
        self._take_slots(out)
        self._take_blocks(out)
        self._encode(out)
        self._write_cross(out)
        columns = zip(out.row_slots, out.row_starts, out.row_counts, out.row_samples, strict=True)
        samples = [self._run_row(self.slots[slot], start, n, last) for slot, start, n, last in columns]
        return ModelRunnerOutput(
            step=out.step,
            token_counts=[int(sample is not None) for sample in samples],
            token_ids=[sample.token for sample in samples if sample],
            logprobs={row: [sample.logprobs] for row, sample in enumerate(samples) if sample},
        )

    def _take_slots(self, out: SchedulerOutput) -> None:
        for slot in out.finished_slots:
            del self.slots[slot]
        for slot in out.reset_slots:
            self.slots[slot].own.blocks.clear()
            self.slots[slot].cross.blocks.clear()
        for new in out.new_requests:
            self.slots[new.slot] = self._new_slot(new)
        for entry in out.freed_entries:
            self.entries[entry].clear()  # whoever is still bound to it reads nothing

    def _new_slot(self, new: NewRequest) -> Slot:
        own, cross = Table(self.kv, self.block_size), Table(self.kv, self.block_size)
        return Slot(new.request, new.sequence, list(new.request.token_ids), own, cross)

    def _take_blocks(self, out: SchedulerOutput) -> None:
        for copy in out.copies:
            for offset in range(self.block_size):
                self.kv[copy.target, offset] = self.kv.get((copy.source, offset), 0)
        for slot, block in zip(out.block_slots, out.block_ids, strict=True):
            self.slots[slot].own.blocks.append(block)
        for slot, index, block in zip(out.swap_slots, out.swap_indices, out.swap_ids, strict=True):
            self.slots[slot].own.blocks[index] = block

    def _encode(self, out: SchedulerOutput) -> None:
        for slot, item, entry in zip(out.encode_slots, out.encode_items, out.encode_entries, strict=True):
            self.entries[entry] = self._rows_of(self.slots[slot].request, item)
        for slot, item, entry in zip(out.bind_slots, out.bind_items, out.bind_entries, strict=True):
            self.slots[slot].rows[item] = self.entries[entry]

    def _rows_of(self, request: PreparedRequest, item: int) -> list[int]:
        prepared = request.items[item]
        if isinstance(prepared.source, ReadyRows):
            return [hash(row.tobytes()) for row in prepared.source.rows]
        encoder, inputs = self.adapter.encoder, [self.inputs[request.request_id, item]]
        rows: list[int] = encoder.build()(**encoder.collate(inputs, [prepared.plan]))
        assert len(rows) == prepared.plan.rows
        return rows

    def _write_cross(self, out: SchedulerOutput) -> None:
        for slot, blocks, write in zip(out.cross_slots, out.cross_blocks, out.cross_writes, strict=True):
            self.slots[slot].cross.blocks[:] = blocks
            if write:
                for index, state in enumerate(self._cross_states(self.slots[slot])):
                    self.slots[slot].cross.write(index, state)

    def _cross_states(self, slot: Slot) -> list[int]:
        assert slot.request.cross is not None
        rows = [row for item in range(len(slot.request.items)) for row in slot.rows[item]]
        if self.adapter.context is None:
            return rows
        states: list[int] = self.adapter.context.build()(rows, slot.request.cross.text_ids)
        return states

    def _run_row(self, slot: Slot, start: int, count: int, samples: bool) -> Sample | None:
        cross = slot.cross.read_all(slot.request.cross.length) if slot.request.cross else 0
        for index in range(start, start + count):
            before = slot.own.read(index - 1) if index else 0
            slot.own.write(index, hash((before, _embedded(slot, index), _position(slot, index), cross)))
        return self._sample(slot, start + count) if samples else None

    def _sample(self, slot: Slot, length: int) -> Sample:
        params = slot.request.sampling
        noise = (params.temperature, params.seed or 0, slot.sequence) if params.temperature else ()
        digest = hash((slot.own.read_all(length), noise))
        ends = self.adapter.decoding.defaults.stop_ids if digest % 19 == 0 else ()
        token = ends[0] if ends else FIRST_LETTER + digest % LETTERS
        slot.tokens.append(token)
        logprob, logit = (digest >> 20) % 2000 / -1000, (digest >> 8) % 1000 / 1000
        return Sample(token, TokenLogprobs(logprob, logit))


def _embedded(slot: Slot, index: int) -> int:
    for r in slot.request.ranges:
        if r.offset <= index < r.offset + r.length:
            return slot.rows[r.item][r.row + index - r.offset]
    return slot.tokens[index]


def _position(slot: Slot, index: int) -> tuple[int, ...]:
    positions = slot.request.positions
    if positions is None:
        return (index,)
    if index < positions.values.shape[1]:
        return tuple(map(int, positions.values[:, index]))
    return (index + positions.delta,) * int(positions.values.shape[0])
