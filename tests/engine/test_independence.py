"""An answer does not depend on its batch, its chunks, the caches, or how often it was preempted.

Each request's trace, run alone in one piece without reuse, is the reference: tokens are equal, logits within
1e-4. Seeded faults show that the property can fail.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcore.engine import Engine
from mmcore.inputs.hashing import block_key

EXAMPLES = int(os.environ.get("MMCORE_INDEPENDENCE_EXAMPLES", "200"))
TOLERANCE = 1e-4


@st.composite
def schedules(draw: st.DrawFn) -> dict[str, Any]:
    """Requests by index (repeats are other requests about the same content) and all that may vary."""
    order = draw(st.lists(st.integers(0, 12), min_size=1, max_size=16))
    block_size = draw(st.sampled_from([4, 8, 16]))
    return {
        "order": order,
        "max_num_tokens": draw(st.sampled_from([1, 2, 5, 11, 16, 33, 64, 4096])),
        "max_batch_size": draw(st.sampled_from([1, 2, 5, 16])),
        "block_size": block_size,
        "kv_tokens": draw(st.sampled_from([96, 112, 160, 4096])),
        "reuse": draw(st.booleans()),
        "encoder_items": draw(st.sampled_from([3, 4, 64])),
        "window": draw(st.sampled_from([1, 3, 64])),
        "late": draw(st.dictionaries(st.integers(0, 15), st.integers(1, 9), max_size=4)),
        "preempt": draw(st.dictionaries(st.integers(0, 60), st.integers(0, 15), max_size=6)),
        "arrivals": draw(st.dictionaries(st.integers(0, 15), st.integers(1, 25), max_size=8)),
        "depth": draw(st.sampled_from([0, 1])),
        "graphs": draw(st.booleans()),
    }


class Independence:
    """The property, for one family."""

    def __init__(self, drive: Any, make_knobs: Callable[..., Any], renamed: Callable[..., Any]) -> None:
        self._drive = drive
        self._make_knobs = make_knobs
        self._renamed = renamed
        alone = make_knobs(reuse=False)
        self.references = [drive.run([request], alone)[request.request_id] for request in self.requests]

    @property
    def requests(self) -> Any:
        return self._drive.family.requests

    def _fits(self, index: int, schedule: dict[str, Any]) -> bool:
        """Beams run at once: a smaller batch or cache refuses them."""
        request, size = self.requests[index], schedule["block_size"]
        width = request.sampling.num_sequences
        if not request.sampling.use_beam_search:
            return True
        cross = request.cross.length if request.cross else 0
        blocks = ceil((request.num_tokens + request.sampling.max_tokens - 1) / size) + ceil(cross / size)
        return bool(width <= schedule["max_batch_size"] and width * blocks * size <= schedule["kv_tokens"])

    def check(
        self, schedule: dict[str, Any], sabotage: Callable[[Engine], None] = lambda engine: None
    ) -> None:
        knobs = {name: value for name, value in schedule.items() if name != "order"}
        chosen = [index % len(self.requests) for index in schedule["order"]]
        chosen = [index for index in chosen if self._fits(index, schedule)]
        asked = [self._renamed(self.requests[i], f"q{n}") for n, i in enumerate(chosen)]
        traces = self._drive.run(asked, self._make_knobs(**knobs), sabotage)
        for n, index in enumerate(chosen):
            assert_same(traces[f"q{n}"], self.references[index])


def assert_same(trace: Any, reference: Any) -> None:
    assert [token for token, _ in trace] == [token for token, _ in reference]
    for (_, logits), (_, expected) in zip(trace, reference, strict=True):
        kept = np.isfinite(expected)
        assert np.array_equal(kept, np.isfinite(logits))
        error = np.abs(logits[kept] - expected[kept]).max()
        assert error <= TOLERANCE * np.abs(expected[kept]).max()


@pytest.fixture(scope="module", params=["pictures", "sounds"])
def independence(request: pytest.FixtureRequest, drives: Any, make_knobs: Any, renamed: Any) -> Independence:
    return Independence(drives[request.param], make_knobs, renamed)


@pytest.fixture(scope="module")
def with_pictures(drives: Any, make_knobs: Any, renamed: Any) -> Independence:
    return Independence(drives["pictures"], make_knobs, renamed)


@pytest.fixture(scope="module")
def with_videos(drives: Any, make_knobs: Any, renamed: Any) -> Independence:
    return Independence(drives["videos"], make_knobs, renamed)


@pytest.fixture(scope="module")
def with_tiles(drives: Any, make_knobs: Any, renamed: Any) -> Independence:
    return Independence(drives["tiles"], make_knobs, renamed)


@pytest.fixture(scope="module")
def with_captions(drives: Any, make_knobs: Any, renamed: Any) -> Independence:
    return Independence(drives["captions"], make_knobs, renamed)


@pytest.fixture(scope="module")
def with_pages(drives: Any, make_knobs: Any, renamed: Any) -> Independence:
    return Independence(drives["pages"], make_knobs, renamed)


@settings(max_examples=EXAMPLES)
@given(schedule=schedules())
def test_answers_are_independent_of_the_schedule(
    independence: Independence, schedule: dict[str, Any]
) -> None:
    independence.check(schedule)


@settings(max_examples=EXAMPLES // 4)
@given(schedule=schedules())
def test_answers_about_videos_are_independent_of_the_schedule(
    with_videos: Independence, schedule: dict[str, Any]
) -> None:
    with_videos.check(schedule)


@settings(max_examples=EXAMPLES // 4)
@given(schedule=schedules())
def test_answers_about_tiles_are_independent_of_the_schedule(
    with_tiles: Independence, schedule: dict[str, Any]
) -> None:
    with_tiles.check(schedule)


@settings(max_examples=EXAMPLES // 4)
@given(schedule=schedules())
def test_captions_are_independent_of_the_schedule(
    with_captions: Independence, schedule: dict[str, Any]
) -> None:
    with_captions.check(schedule)


@settings(max_examples=EXAMPLES // 4)
@given(schedule=schedules())
def test_answers_about_pages_are_independent_of_the_schedule(
    with_pages: Independence, schedule: dict[str, Any]
) -> None:
    with_pages.check(schedule)


# ------------------------------------------------------------------ seeded faults

BUSY = {
    "order": [2, 3, 4, 7, 5, 2, 8],
    "max_num_tokens": 7,
    "max_batch_size": 16,
    "block_size": 4,
    "kv_tokens": 4096,
    "reuse": True,
    "encoder_items": 4,
    "late": {},
    "preempt": {6: 1, 15: 0},
    "arrivals": {1: 4, 2: 8, 5: 40, 6: 12},
}


CROWDED = BUSY | {
    "order": [7, 4, 7, 1, 4, 8],
    "max_num_tokens": 83,
    "reuse": False,
    "encoder_items": 2,
    "preempt": {},
    "arrivals": {},
}
"""More pictures than the encoder cache holds; some are encoded where others are read for the last time."""


def media_key_left_out(engine: Any) -> None:
    engine._scheduler._kv._block_key = lambda parent, token_ids, media: block_key(parent, token_ids, ())


def position_slice_off_by_one(engine: Any) -> None:
    table = engine._runner._table
    positions = table._positions

    def shifted(*columns: Any) -> Any:
        *others, index = columns
        return positions(*others, np.maximum(index - 1, 0) if index[0] else index)

    table._positions = shifted


def item_freed_a_step_early(engine: Any) -> None:
    """Rows are let go before the step that reads them last, so that its own encoding takes their room."""
    planner = engine._scheduler._planner
    note = planner.note_last_uses

    def note_and_release(sequence: Any, stop: int) -> None:
        note(sequence, stop)
        planner.release_used()
        planner._plan.last_uses.clear()

    planner.note_last_uses = note_and_release


def seed_taken_by_batch_row(engine: Any) -> None:
    sampling = engine._runner._sampling
    batch = sampling._batch

    def by_row(inputs: Any, table: Any) -> Any:
        made = batch(inputs, table)
        return replace(made, seed=torch.arange(len(made.seed)))

    sampling._batch = by_row


SEARCHING = BUSY | {"order": [10, 3, 11, 10, 12, 11], "max_num_tokens": 64, "block_size": 8}
"""Beams that share blocks, move into each other's places and step back."""


def history_left_behind(engine: Any) -> None:
    """A beam that goes on from another one keeps the counts of its own tokens."""
    engine._runner._sampling._options.copy = lambda sources, targets: None


def shared_tail_written_in_place(engine: Any) -> None:
    engine._scheduler._kv.pool.is_writable = lambda block: True


@pytest.mark.parametrize("schedule", [BUSY, CROWDED, SEARCHING], ids=["busy", "crowded", "searching"])
def test_the_schedules_hold_without_a_fault(with_pictures: Independence, schedule: dict[str, Any]) -> None:
    with_pictures.check(schedule)


@pytest.mark.parametrize(
    ("fault", "schedule"),
    [
        (media_key_left_out, BUSY),
        (position_slice_off_by_one, BUSY),
        (item_freed_a_step_early, CROWDED),
        (seed_taken_by_batch_row, BUSY),
        (history_left_behind, SEARCHING),
        (shared_tail_written_in_place, SEARCHING),
    ],
)
def test_a_seeded_fault_is_found(
    with_pictures: Independence, fault: Callable[[Engine], None], schedule: dict[str, Any]
) -> None:
    with pytest.raises(AssertionError):
        with_pictures.check(schedule, fault)
