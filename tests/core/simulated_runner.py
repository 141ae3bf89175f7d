"""A model runner in pure Python that knows what the right history of each token is.

A KV cell is the hash of all that was read to compute it: the cells before it, the cross cells, and the token
or item row itself. The simulated runner computes cells only from what the block table, the bound encoder
entries and the cross blocks hold, and asserts at each row that this is the request's own history. Stale
blocks, wrong sharing, a missing copy, a row of another item, an entry that is gone: each one is caught.

A failed row leaves garbage behind in everything it was to write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mmcore.core.output import ModelRunnerOutput, SchedulerOutput, TokenLogprobs
from mmcore.errors import RequestError
from mmcore.request import ArraySource, EncodedSource, PreparedRequest, ReadyRows

VOCABULARY = 23
GARBAGE = -1


def row_content(request: PreparedRequest, item: int, row: int) -> int:
    """What row ``row`` of the item is: a function of its media alone."""
    source = request.items[item].source
    assert not isinstance(source, ArraySource)
    data = source.data if isinstance(source, EncodedSource) else bytes(source.rows)
    return hash((int.from_bytes(data, "little"), row))


def cross_content(request: PreparedRequest, row: int) -> int:
    """A cross state depends on every item and on the text that the context stage reads."""
    assert request.cross is not None
    items = tuple(row_content(request, item, 0) for item in range(len(request.items)))
    return hash((items, request.cross.text_ids, row))


def cross_history(request: PreparedRequest) -> int:
    if request.cross is None:
        return 0
    return hash(tuple(cross_content(request, row) for row in range(request.cross.length)))


def media_at(request: PreparedRequest, position: int) -> tuple[int, int] | None:
    """(item, row) at a token position."""
    for r in request.ranges:
        if r.offset <= position < r.offset + r.length:
            return r.item, r.row + position - r.offset
    return None


def next_cell(cell: int, content: int) -> int:
    return hash((cell, content))


def sample(cell: int, sequence: int) -> int:
    return hash((cell, sequence)) % VOCABULARY


def candidates(cell: int) -> tuple[tuple[int, float], ...]:
    """Every token with its logprob, the likeliest first."""
    scores = {token: -(hash((cell, token, 7)) % 100_003) / 20_000 for token in range(VOCABULARY)}
    return tuple(sorted(scores.items(), key=lambda pair: -pair[1]))


def right_cells(request: PreparedRequest, tokens: Sequence[int]) -> list[int]:
    """The cells that these tokens must have, whatever the schedule was."""
    cells: list[int] = []
    cell = cross_history(request)
    for position, token in enumerate(tokens):
        media = media_at(request, position)
        cell = next_cell(cell, token if media is None else row_content(request, *media))
        cells.append(cell)
    return cells


@dataclass
class Slot:
    request: PreparedRequest
    sequence: int
    tokens: list[int]
    cells: list[int]
    """The right ones, as far as tokens are known."""
    blocks: list[int] = field(default_factory=list)
    cross_blocks: list[int] = field(default_factory=list)
    bound: dict[int, int] = field(default_factory=dict)


class SimulatedRunner:
    """Executes steps in the order in which they were laid out."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.slots: dict[int, Slot] = {}
        self.kv: dict[tuple[int, int], int] = {}
        self.entries: dict[int, tuple[PreparedRequest, int] | None] = {}
        """Encoder rows: whose item they are of. None is garbage."""
        self.fed: set[tuple[str, int]] = set()
        self.broken: set[PreparedRequest] = set()
        """A row of theirs failed: until that is known, what all their sequences compute is garbage."""

    def execute(self, out: SchedulerOutput, failing: frozenset[int] = frozenset()) -> ModelRunnerOutput:
        """``failing`` are slots whose row fails."""
        for slot in out.finished_slots:
            del self.slots[slot]
        for slot in out.reset_slots:
            self.slots[slot].blocks, self.slots[slot].cross_blocks, self.slots[slot].bound = [], [], {}
        self._meet(out)
        self._take_blocks(out)
        failing &= frozenset(out.row_slots)
        self.broken |= {self.slots[slot].request for slot in failing}
        self._encode(out, failing)
        self._write_cross(out, failing)
        given = [self._row(out, row, failing) for row in range(len(out.row_slots))]
        tokens = [token if isinstance(token, int) else None for token in given]
        return ModelRunnerOutput(
            step=out.step,
            token_counts=[int(token is not None) for token in tokens],
            token_ids=[token for token in tokens if token is not None],
            logprobs={row: (one,) for row, one in enumerate(given) if isinstance(one, TokenLogprobs)},
            errors={slot: RequestError(f"slot {slot} was told to fail") for slot in failing},
        )

    # ------------------------------------------------------------------ tables

    def _meet(self, out: SchedulerOutput) -> None:
        for new in out.new_requests:
            assert new.slot not in self.slots, "a slot is given twice"
            tokens = list(new.request.token_ids)
            self.slots[new.slot] = Slot(new.request, new.sequence, tokens, right_cells(new.request, tokens))
        assert len(set(out.row_slots)) == len(out.row_slots), "two rows of one slot"
        advanced = [
            [*self.slots[source].tokens, token]
            for source, token in zip(out.advance_sources, out.advance_ids, strict=True)
        ]
        for number, tokens in zip(out.advance_slots, advanced, strict=True):
            slot = self.slots[number]
            slot.tokens, slot.cells = tokens, right_cells(slot.request, tokens)

    def _take_blocks(self, out: SchedulerOutput) -> None:
        for number in out.freed_entries:
            del self.entries[number]
        copied = {
            (copy.target, offset): self.kv.get((copy.source, offset))
            for copy in out.copies
            for offset in range(self.block_size)
        }
        self.kv.update({place: cell for place, cell in copied.items() if cell is not None})
        for slot, block in zip(out.block_slots, out.block_ids, strict=True):
            self.slots[slot].blocks.append(block)
        for slot, index, block in zip(out.swap_slots, out.swap_indices, out.swap_ids, strict=True):
            self.slots[slot].blocks[index] = block

    # ------------------------------------------------------------------ media

    def _encode(self, out: SchedulerOutput, failing: frozenset[int]) -> None:
        for slot, item, number in zip(out.encode_slots, out.encode_items, out.encode_entries, strict=True):
            request = self.slots[slot].request
            assert number not in self.entries, "an entry is written twice"
            ready = isinstance(request.items[item].source, ReadyRows)
            assert ready or (request.request_id, item) in self.fed, "an item is encoded and is not here"
            self.entries[number] = None if slot in failing else (request, item)
        for slot, item, number in zip(out.bind_slots, out.bind_items, out.bind_entries, strict=True):
            assert number in self.entries
            self.slots[slot].bound[item] = number

    def _rows_of(self, slot: Slot, item: int) -> tuple[PreparedRequest, int] | None:
        number = slot.bound[item]
        assert number in self.entries, "an item's rows are gone before they were used"
        return self.entries[number]

    def _write_cross(self, out: SchedulerOutput, failing: frozenset[int]) -> None:
        for number, blocks, writes in zip(out.cross_slots, out.cross_blocks, out.cross_writes, strict=True):
            slot = self.slots[number]
            assert slot.request.cross is not None
            slot.cross_blocks = list(blocks)
            if not writes:
                continue
            found = [self._rows_of(slot, item) for item in range(len(slot.request.items))]
            items = tuple(row_content(*rows, 0) if rows else GARBAGE for rows in found)
            for row in range(slot.request.cross.length):
                cell = hash((items, slot.request.cross.text_ids, row))
                self.kv[self._place(blocks, row)] = GARBAGE if number in failing else cell

    # ------------------------------------------------------------------ rows

    def _place(self, blocks: Sequence[int], position: int) -> tuple[int, int]:
        return blocks[position // self.block_size], position % self.block_size

    def _row(self, out: SchedulerOutput, row: int, failing: frozenset[int]) -> int | TokenLogprobs | None:
        number, start, count = out.row_slots[row], out.row_starts[row], out.row_counts[row]
        slot = self.slots[number]
        is_broken = slot.request in self.broken
        self._check_cut(slot.request, start)
        self._check_cut(slot.request, start + count)
        cell = self._history(slot, start)
        for position in range(start, start + count):
            cell = next_cell(cell, self._content(slot, position))
            self.kv[self._place(slot.blocks, position)] = GARBAGE if is_broken else cell
        assert is_broken or cell == slot.cells[start + count - 1], "a token was computed from other rows"
        assert out.row_samples[row] == (start + count == len(slot.tokens)), "sampled too early or not at all"
        if not out.row_samples[row]:
            return None
        if slot.request.sampling.use_beam_search:
            return None if number in failing else TokenLogprobs(0.0, 0.0, candidates(cell))
        token = self._sample(slot, cell)
        return None if number in failing else token

    def _history(self, slot: Slot, start: int) -> int:
        """Read all that comes before ``start``: the request's own, position by position."""
        if slot.request not in self.broken:
            for position in range(start):
                found = self.kv.get(self._place(slot.blocks, position))
                assert found == slot.cells[position], f"position {position} holds another history"
        cross = self._cross_history(slot)
        return self.kv.get(self._place(slot.blocks, start - 1), GARBAGE) if start else cross

    def _cross_history(self, slot: Slot) -> int:
        if slot.request.cross is None:
            return 0
        places = [self._place(slot.cross_blocks, row) for row in range(slot.request.cross.length)]
        found = hash(tuple(self.kv.get(place) for place in places))
        assert slot.request in self.broken or found == cross_history(slot.request), (
            "cross states of something else"
        )
        return found

    def _content(self, slot: Slot, position: int) -> int:
        media = media_at(slot.request, position)
        if media is None:
            return slot.tokens[position]
        item, row = media
        rows = self._rows_of(slot, item)
        return GARBAGE if rows is None else row_content(*rows, row)

    def _sample(self, slot: Slot, cell: int) -> int:
        token = sample(cell, slot.sequence)
        slot.tokens.append(token)
        slot.cells.append(next_cell(cell, token))
        return token

    def _check_cut(self, request: PreparedRequest, position: int) -> None:
        for r in request.ranges:
            inside = r.offset < position < r.offset + r.length
            assert not (inside and request.items[r.item].plan.atomic), "an atomic item is cut"
