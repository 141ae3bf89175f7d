"""How sequences end, overlapped steps, and answers that are not what was asked for."""

from __future__ import annotations

import pytest
from core.harness import Harness, Sizes, right_tokens, rows
from core.sample_requests import (
    Picture,
    make_request,
    stop_at,
)

from mmcore.core.output import ModelRunnerOutput
from mmcore.errors import EngineError, MediaFetchError

CAT, DOG = Picture(1, 6), Picture(2, 6)


def test_stop_ids_count_after_min_tokens_and_length_ends_the_rest() -> None:
    request = make_request("r", [1, 2, 3])
    free = right_tokens(request, stop_at(8), 0)
    stop = stop_at(8, free[1], min_tokens=free.index(free[1]) + 1)
    harness = Harness()
    harness.add(request, stop)
    harness.run()
    ended = harness.done["r"].ended[0]
    assert (ended.reason, ended.stop_reason) == ("stop", free[1])
    harness.add(request, stop_at(8, 10_000))
    harness.run()
    assert harness.done["r"].ended[0].reason == "length"


def test_a_stop_id_before_min_tokens_ends_nothing() -> None:
    request = make_request("r", [1, 2, 3])
    first = right_tokens(request, stop_at(4), 0)[0]
    harness = Harness()
    harness.add(request, stop_at(4, first, min_tokens=4))
    harness.run()
    assert len(harness.done["r"].tokens[0]) == 4


@pytest.mark.parametrize("overlap", [False, True])
def test_an_error_ends_its_request_alone(overlap: bool) -> None:
    harness = Harness(overlap=overlap)
    for number in range(3):
        harness.add(make_request(f"r{number}", [1, number]), stop_at(4))
    harness.step(frozenset({1}))
    harness.run()
    reasons = {name: live.ended[0].reason for name, live in harness.done.items()}
    assert reasons == {"r0": "length", "r1": "error", "r2": "length"}


@pytest.mark.parametrize("overlap", [False, True])
def test_an_error_beside_a_prompt_that_goes_on_leaves_it_alone(overlap: bool) -> None:
    """A chunk that samples nothing is no fault, in whatever step it is."""
    harness = Harness(Sizes(max_num_tokens=8, max_chunk_tokens=4), overlap=overlap)
    harness.add(make_request("bad", [1]), stop_at(4))
    harness.add(make_request("long", list(range(1, 12))), stop_at(2))
    harness.step(frozenset({0}))
    assert "long" in harness.live
    harness.run()
    ended = {name: live.ended[0].reason for name, live in harness.done.items()}
    assert ended == {"bad": "error", "long": "length"}


def test_an_item_that_can_not_be_had_ends_its_request_alone() -> None:
    harness = Harness()
    harness.add(make_request("bad", [1, CAT], n=2), stop_at(2), ready=False)
    harness.add(make_request("good", [1, DOG]), stop_at(2))
    harness.fail_item("bad", 0, MediaFetchError("gone"))
    assert [record.error for record in harness.done["bad"].ended.values()] != [None, None]
    harness.run()
    assert harness.done["good"].ended[0].reason == "length"


def test_late_news_of_an_ended_request_changes_nothing() -> None:
    harness = Harness()
    harness.add(make_request("r", [1, CAT]), stop_at(2), ready=False)
    harness.abort("r")
    harness.scheduler.item_ready("r", 0)
    assert harness.scheduler.item_failed("r", 0, MediaFetchError("late")) == ()
    assert harness.scheduler.abort("r") == ()
    assert harness.scheduler.finish("r", 0, "stop") == ()
    assert not harness.scheduler.has_unfinished


def test_waiting_for_preprocessing_is_no_ready_work() -> None:
    harness = Harness()
    harness.add(make_request("r", [1, CAT]), stop_at(2), ready=False)
    assert not harness.scheduler.has_ready_work
    assert harness.scheduler.has_unfinished
    assert harness.step().is_empty
    harness.ready("r", 0)
    assert harness.scheduler.has_ready_work
    harness.run()


# ------------------------------------------------------------------ overlap and odd answers


def test_a_step_is_laid_out_before_the_one_before_it_is_known() -> None:
    harness = Harness(overlap=True)
    harness.add(make_request("r", [1, 2, 3]), stop_at(3))
    outs = [harness.schedule(), harness.schedule()]
    assert [rows(out)[0] for out in outs] == [(0, 0, 3, True), (0, 3, 1, True)]
    with pytest.raises(EngineError, match="in flight"):
        harness.scheduler.schedule()
    harness.update()
    assert rows(harness.schedule()) == [(0, 4, 1, True)]
    harness.update()
    assert rows(harness.schedule()) == [], "max_tokens tokens are in flight already"
    harness.update()
    harness.run()


def test_tokens_after_the_end_are_dropped() -> None:
    request = make_request("r", [1, 2, 3])
    stop = stop_at(9, right_tokens(request, stop_at(9), 0)[2])
    harness = Harness(overlap=True)
    harness.add(request, stop)
    harness.run()
    assert harness.done["r"].tokens[0] == right_tokens(request, stop, 0)


def test_several_tokens_in_one_step_are_computed_in_the_next() -> None:
    harness = Harness()
    scheduler = harness.scheduler
    scheduler.add(make_request("r", [1, 2, 3]), stop_at(6, 77))
    out = scheduler.schedule()
    update = scheduler.update(out, ModelRunnerOutput(step=0, token_counts=[3], token_ids=[5, 6, 7]))
    assert (update.token_counts, list(update.token_ids)) == ([3], [5, 6, 7])
    out = scheduler.schedule()
    assert rows(out) == [(0, 3, 3, True)]
    update = scheduler.update(out, ModelRunnerOutput(step=1, token_counts=[3], token_ids=[8, 77, 9]))
    assert (update.token_counts, list(update.token_ids)) == ([2], [8, 77])
    assert [record.stop_reason for record in update.ended] == [77]
    scheduler.check_integrity()


@pytest.mark.parametrize(("counts", "ids"), [([0], []), ([2], [5, 6])])
def test_an_answer_that_does_not_fit_its_row_ends_the_request(counts: list[int], ids: list[int]) -> None:
    harness = Harness(overlap=True)
    scheduler = harness.scheduler
    scheduler.add(make_request("r", [1, 2, 3]), stop_at(6))
    out = scheduler.schedule()
    scheduler.schedule()
    update = scheduler.update(out, ModelRunnerOutput(step=0, token_counts=counts, token_ids=ids))
    assert [(record.reason, record.request_id) for record in update.ended] == [("error", "r")]
    scheduler.check_integrity()


@pytest.mark.parametrize(
    "result",
    [
        ModelRunnerOutput(step=7, token_counts=[1], token_ids=[5]),
        ModelRunnerOutput(step=0, token_counts=[1, 1], token_ids=[5, 5]),
        ModelRunnerOutput(step=0, token_counts=[1], token_ids=[]),
        ModelRunnerOutput(step=0, token_counts=[1], token_ids=[5], errors={3: MediaFetchError("no")}),
    ],
)
def test_an_answer_to_another_step_is_an_engine_error(result: ModelRunnerOutput) -> None:
    harness = Harness()
    harness.scheduler.add(make_request("r", [1, 2, 3]), stop_at(6))
    out = harness.scheduler.schedule()
    with pytest.raises(EngineError, match="step"):
        harness.scheduler.update(out, result)


def test_updates_come_in_the_order_of_the_steps() -> None:
    harness = Harness()
    harness.scheduler.add(make_request("r", [1, 2, 3]), stop_at(6))
    harness.scheduler.schedule()
    second = harness.scheduler.schedule()
    with pytest.raises(EngineError, match="oldest in flight"):
        harness.scheduler.update(second, ModelRunnerOutput(step=1, token_counts=[1], token_ids=[5]))
