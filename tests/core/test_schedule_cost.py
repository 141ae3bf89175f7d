"""A step costs what it schedules, not what is queued behind: counted in calls, so that no clock is asked."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from core.harness import Harness, Sizes
from core.sample_requests import Picture, make_request, stop_at

SIZES = Sizes(num_blocks=200, block_size=16, max_batch_size=4, max_num_tokens=16)


def calls_of_a_step(harness: Harness) -> int:
    """Python and C calls of one `schedule` and `update`."""
    count = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        out = harness.scheduler.schedule()
    finally:
        sys.setprofile(None)
    result = harness.runner.execute(out)
    sys.setprofile(profile)
    try:
        update = harness.scheduler.update(out, result)
    finally:
        sys.setprofile(None)
    harness._note_ended(update.ended)
    return count


def step_calls(queued: int) -> list[int]:
    harness = Harness(SIZES)
    for number in range(4):
        harness.add(make_request(f"r{number}", [1, 2, 3]), stop_at(200))
    for _ in range(3):
        harness.step()
    for number in range(queued):
        pieces: list[int | Picture] = [4, Picture(1, 2), 5] if number % 2 else [6, 7]
        harness.add(make_request(f"q{number}", pieces), stop_at(3), ready=bool(number % 3))
    return [calls_of_a_step(harness) for _ in range(20)]


def test_ten_thousand_queued_requests_cost_a_step_nothing() -> None:
    assert step_calls(10_000) == step_calls(100)
