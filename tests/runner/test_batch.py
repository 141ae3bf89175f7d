"""The runner's tables: what a step's flat inputs are cut out to be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcore.core.output import SchedulerOutput
from mmcore.request import PlaceholderRange, PreparedRequest, TokenPositions
from mmcore.runner.batch import BatchTable, MergeSlice, TableShape
from mmcore.sampling_params import SamplingParams

SHAPE = TableShape(slots=4, max_length=64, block_size=4, axes=3)


def prepared(token_ids: tuple[int, ...], **fields: Any) -> PreparedRequest:
    return PreparedRequest(
        request_id="r", token_ids=token_ids, sampling=SamplingParams(), root_key=b"root", **fields
    )


def step(rows: list[tuple[int, int, int, bool]], blocks: Sequence[tuple[int, int]] = ()) -> SchedulerOutput:
    slots, starts, counts, samples = zip(*rows, strict=True)
    return SchedulerOutput(
        step=0,
        row_slots=slots,
        row_starts=starts,
        row_counts=counts,
        row_samples=samples,
        block_slots=[slot for slot, _ in blocks],
        block_ids=[block for _, block in blocks],
    )


def test_a_mixed_batch_is_cut_out_of_the_tables() -> None:
    table = BatchTable(SHAPE)
    table.add(0, prepared((10, 11, 12, 13, 14, 15)))
    table.add(2, prepared((20, 21, 22)))
    output = step([(2, 2, 1, True), (0, 1, 4, False)], [(0, 7), (0, 3), (2, 5)])
    table.place_blocks(output)
    inputs = table.lay_out(output)
    assert inputs.token_ids.tolist() == [22, 11, 12, 13, 14]
    assert inputs.positions.tolist() == [[2, 1, 2, 3, 4]] * 3
    assert inputs.slot_mapping.tolist() == [5 * 4 + 2, 7 * 4 + 1, 7 * 4 + 2, 7 * 4 + 3, 3 * 4]
    assert inputs.query_starts.tolist() == [0, 1, 5]
    assert inputs.context_lens.tolist() == [3, 5]
    assert inputs.block_tables[:, :2].tolist() == [[5, 0], [7, 3]]
    assert (inputs.sample_rows.tolist(), inputs.sample_tokens.tolist()) == ([0], [0])
    assert inputs.sample_positions.tolist() == [0]


def test_sampled_tokens_are_the_next_steps_inputs() -> None:
    table = BatchTable(SHAPE)
    table.add(1, prepared((5, 6)))
    table.place_blocks(step([(1, 0, 2, True)], [(1, 2)]))
    table.fill(table.reserve(np.array([1])), np.array([99]))
    inputs = table.lay_out(step([(1, 2, 1, True)]))
    assert inputs.token_ids.tolist() == [99]
    assert inputs.sample_positions.tolist() == [1]
    assert table.generated(1).tolist() == [99]


def test_a_preempted_slot_keeps_its_tokens_and_takes_new_blocks() -> None:
    table = BatchTable(SHAPE)
    table.add(0, prepared((1, 2, 3)))
    table.place_blocks(step([(0, 0, 3, True)], [(0, 9)]))
    table.fill(table.reserve(np.array([0])), np.array([4]))
    table.reset(0)
    output = step([(0, 0, 4, True)], [(0, 6)])
    table.place_blocks(output)
    inputs = table.lay_out(output)
    assert inputs.token_ids.tolist() == [1, 2, 3, 4]
    assert inputs.slot_mapping.tolist() == [24, 25, 26, 27]


def test_a_copied_tail_replaces_its_entry() -> None:
    table = BatchTable(SHAPE)
    table.add(0, prepared((1, 2, 3, 4, 5)))
    first = step([(0, 0, 5, True)], [(0, 1), (0, 2)])
    table.place_blocks(first)
    swap = SchedulerOutput(step=1, swap_slots=[0], swap_indices=[1], swap_ids=[8])
    table.place_blocks(swap)
    assert table.lay_out(step([(0, 4, 1, True)])).slot_mapping.tolist() == [8 * 4]


@given(cut=st.integers(0, 9), length=st.integers(1, 10))
def test_rows_of_an_item_are_sliced_where_the_chunk_cuts(cut: int, length: int) -> None:
    ranges = (PlaceholderRange(2, 3, 0, 0), PlaceholderRange(6, 2, 0, 3), PlaceholderRange(8, 2, 1, 0))
    length = min(length, 10 - cut)
    table = BatchTable(SHAPE)
    table.add(0, prepared(tuple(range(10)), ranges=ranges))
    output = step([(0, cut, length, False)], [(0, b) for b in range(3)])
    table.place_blocks(output)
    inputs = table.lay_out(output)
    whole = {2: (0, 0), 3: (0, 1), 4: (0, 2), 6: (0, 3), 7: (0, 4), 8: (1, 0), 9: (1, 1)}
    expected = {p - cut: row for p, row in whole.items() if cut <= p < cut + length}
    got = {m.position + k: (m.item, m.row + k) for m in inputs.merges for k in range(m.length)}
    assert got == expected
    assert all(isinstance(merge, MergeSlice) for merge in inputs.merges)
    assert all(inputs.token_ids[position] == 0 for position in expected)


@given(start=st.integers(0, 11), count=st.integers(1, 12))
def test_stored_positions_are_sliced_and_continued_by_the_delta(start: int, count: int) -> None:
    values = np.arange(24, dtype=np.int32).reshape(3, 8) * 7
    table = BatchTable(SHAPE)
    table.add(3, prepared(tuple(range(8)), positions=TokenPositions(values, delta=-3)))
    output = step([(3, start, count, False)], [(3, b) for b in range(6)])
    table.place_blocks(output)
    whole = np.concatenate([values, np.broadcast_to(np.arange(8, 24) - 3, (3, 16))], axis=1)
    assert (table.lay_out(output).positions == whole[:, start : start + count]).all()


@pytest.mark.parametrize("length", [1, 4, 6])
def test_cross_tables_and_their_mapping(length: int) -> None:
    table = BatchTable(TableShape(slots=2, max_length=16, block_size=4, axes=1, cross=True))
    table.add(1, prepared((1,)))
    table.place_cross_blocks(1, [9, 4][: -(-length // 4)], length)
    output = step([(1, 0, 1, True)], [(1, 0)])
    table.place_blocks(output)
    inputs = table.lay_out(output)
    assert inputs.cross_lens is not None
    assert inputs.cross_lens.tolist() == [length]
    assert table.cross_slot_mapping(1).tolist() == [36, 37, 38, 39, 16, 17][:length]
