"""Which graph a decode step takes: one that is there already, if it is not much too large."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from mmcore.runner.batch import StepInputs, TableShape
from mmcore.runner.cuda_graph import LADDER, DecodeGraph, DecodeGraphs
from mmcore.runner.decode_step import DecodeColumns, LastTokens, Selected

SHAPE = TableShape(slots=256, max_length=32_768, block_size=16, axes=1)


class Echo:
    """A decode step that tells how many rows it was made for."""

    def __call__(self, columns: Any) -> Selected:
        rows = torch.full((len(columns["slots"]),), len(columns["slots"]))
        return Selected(rows, rows.float(), rows[:, None].float(), rows)


def decode(rows: int, blocks: int) -> StepInputs:
    ints = np.arange(rows, dtype=np.int64)
    return StepInputs(
        token_ids=ints,
        positions=ints[None],
        slot_mapping=ints,
        query_starts=np.arange(rows + 1, dtype=np.int32),
        context_lens=np.full(rows, blocks * 16, np.int32),
        block_tables=np.zeros((rows, blocks), np.int32),
        max_query_len=1,
        merges=(),
        sample_rows=ints,
        sample_tokens=ints,
        sample_slots=ints,
        sample_positions=ints,
    )


@pytest.fixture
def graphs() -> DecodeGraphs:
    step: Any = Echo()
    return DecodeGraphs(step, SHAPE, LastTokens(SHAPE.slots, torch.device("cpu")))


def size_used(graphs: DecodeGraphs, rows: int, blocks: int = 4) -> int:
    selected = graphs.run(decode(rows, blocks))
    assert selected is not None
    assert len(selected.token_ids) == rows
    return int(selected.token_ids[0])


def test_a_size_that_is_missing_takes_the_next_one_that_is_there(graphs: DecodeGraphs) -> None:
    assert size_used(graphs, 30) == 32
    assert [size_used(graphs, rows) for rows in (32, 24, 17, 16)] == [32] * 4
    assert len(graphs._graphs) == 1
    assert size_used(graphs, 15) == 16, "twice as many rows and more are too many"
    assert size_used(graphs, 16) == 16
    assert size_used(graphs, 17) == 32, "the smallest of those that do"


def test_a_wider_graph_does_for_shorter_contexts(graphs: DecodeGraphs) -> None:
    assert size_used(graphs, 1, blocks=100) == 1
    assert {key[1] for key in graphs._graphs} == {128}
    assert size_used(graphs, 1, blocks=20) == 1
    assert len(graphs._graphs) == 1
    size_used(graphs, 1, blocks=2000)
    assert {key[1] for key in graphs._graphs} == {128, 2048}
    size_used(graphs, 1, blocks=300)
    assert {key[1] for key in graphs._graphs} == {128, 2048}, "2,048 is four times 512"
    size_used(graphs, 1, blocks=200)
    assert {key[1] for key in graphs._graphs} == {128, 256, 2048}, "and more than four times 256"


def test_a_start_captures_what_serves_most_counts_first(
    graphs: DecodeGraphs, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[int] = []
    make = DecodeGraph.__init__

    def noting(self: DecodeGraph, step: Any, columns: DecodeColumns, recorder: Any) -> None:
        order.append(len(columns.on_device["slots"]))
        make(self, step, columns, recorder)

    monkeypatch.setattr(DecodeGraph, "__init__", noting)
    graphs.warm_up(cross_width=0)
    assert order[:9] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert sorted(order) == sorted(LADDER)
