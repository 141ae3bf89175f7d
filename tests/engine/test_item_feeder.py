"""Which items are preprocessed next: a window ahead of the batch, whole requests, deadlines."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from mmcore import LLM, SamplingParams
from mmcore.errors import RequestTimeoutError
from mmcore.item_feeder import ItemFeeder
from mmcore.request import PreparedItem, PreparedRequest


class Desk:
    """A pool whose jobs are done when the test says so."""

    def __init__(self) -> None:
        self.started: list[tuple[str, int]] = []
        self.done: list[Any] = []

    def submit(self, request_id: str, index: int, item: PreparedItem) -> None:
        self.started.append((request_id, index))

    def poll(self) -> list[Any]:
        done, self.done = self.done, []
        return done

    def cancel(self, request_id: str) -> None:
        self.done = [entry for entry in self.done if entry[0] != request_id]

    def close(self) -> None:
        self.done.clear()


@pytest.fixture
def request_of(drives: Any) -> Any:
    """Copies of a request about two pictures."""
    base = next(r for r in drives["pictures"].family.requests if len(r.items) == 2)

    def make(name: str, priority: int = 0) -> PreparedRequest:
        made: PreparedRequest = replace(base, request_id=name, priority=priority)
        return made

    return make


def test_whole_requests_enter_while_the_window_has_room(request_of: Any) -> None:
    desk = Desk()
    feeder = ItemFeeder(desk, window=3, timeout=60.0)
    requests = [request_of(name) for name in "abc"]
    for request in requests:
        feeder.add(request, (0, 1))
    assert desk.started == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    feeder.scheduled("a")
    assert desk.started[4:] == [("c", 0), ("c", 1)]


def test_an_ended_request_makes_room_and_is_never_started(request_of: Any) -> None:
    desk = Desk()
    feeder = ItemFeeder(desk, window=1, timeout=60.0)
    a, b, c = (request_of(name) for name in "abc")
    for request in (a, b, c):
        feeder.add(request, (0, 1))
    feeder.cancel(b)
    assert {name for name, _ in desk.started} == {"a"}
    feeder.cancel(a)
    assert {name for name, _ in desk.started} == {"a", "c"}


def test_a_better_priority_enters_first(request_of: Any) -> None:
    desk = Desk()
    feeder = ItemFeeder(desk, window=1, timeout=60.0)
    for request in (request_of("a"), request_of("b", priority=1), request_of("c", priority=0)):
        feeder.add(request, (0,))
    feeder.scheduled("a")
    feeder.scheduled("c")
    assert [name for name, _ in desk.started] == ["a", "c", "b"]


def test_an_item_that_is_wanted_again_waits_for_nobody(request_of: Any) -> None:
    desk = Desk()
    feeder = ItemFeeder(desk, window=1, timeout=60.0)
    feeder.add(request_of("a"), (0, 1))
    feeder.add_again(request_of("b"), 1)
    assert desk.started[-1] == ("b", 1)


def test_the_deadline_runs_from_where_the_work_starts(request_of: Any) -> None:
    desk = Desk()
    feeder = ItemFeeder(desk, window=1, timeout=0.05)
    feeder.add(request_of("a"), (0,))
    feeder.add(request_of("b"), (0,))
    time.sleep(0.06)
    ((name, item, error),) = feeder.take()
    assert (name, item) == ("a", 0)
    assert isinstance(error, RequestTimeoutError)
    desk.done.append(("a", 0, error))
    assert feeder.take() == [], "what comes after its deadline is dropped"
    feeder.cancel(request_of("a"))
    assert desk.started[-1] == ("b", 0)
    assert feeder.take() == []


def test_many_requests_hold_few_preprocessed_items(picture_family: Any, make_picture: Any) -> None:
    held: list[int] = []
    with LLM(picture_family.folder, device="cpu", max_batch_size=1, preprocess_workers=1) as llm:
        runner = llm._engine._runner
        submit = runner.submit

        def counted(output: Any) -> Any:
            held.append(runner._encoder.num_inputs)
            return submit(output)

        runner.submit = counted  # type: ignore[method-assign]
        prompts: list[Any] = [
            {"prompt": "What?", "multi_modal_data": {"image": [make_picture(seed, 56, 56)]}}
            for seed in range(24)
        ]
        outputs = llm.generate(prompts, SamplingParams(max_tokens=2, ignore_eos=True), use_tqdm=False)
    assert all(output.error is None for output in outputs)
    assert max(held) <= 4 + 1, "a window of four items ahead, and the running request's own"
