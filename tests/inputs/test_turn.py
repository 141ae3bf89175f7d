"""Turns: one thread at a time, and whether any wants it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from mmcore.inputs.turn import Turn


def test_one_thread_at_a_time() -> None:
    turn = Turn()
    inside: list[None] = []
    most: list[int] = []

    def work() -> None:
        with turn.taken():
            inside.append(None)
            time.sleep(0.002)
            most.append(len(inside))
            inside.pop()

    with ThreadPoolExecutor(4) as pool:
        for _ in range(12):
            pool.submit(work)
    assert most == [1] * 12
    assert not turn.is_wanted


def _fail(turn: Turn) -> None:
    with turn.taken():
        assert turn.is_wanted
        raise ValueError("spoilt")


def test_an_error_gives_the_turn_back() -> None:
    turn = Turn()
    with pytest.raises(ValueError, match="spoilt"):
        _fail(turn)
    assert not turn.is_wanted
    with turn.taken():
        assert turn.is_wanted
