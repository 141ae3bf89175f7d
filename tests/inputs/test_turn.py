"""Turns: one thread at a time, and whether any wants it."""

from __future__ import annotations

import threading
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


def test_one_goes_ahead_of_all_who_wait() -> None:
    turn, order = Turn(), []
    started, go_on = threading.Event(), threading.Event()

    def work(name: int) -> None:
        with turn.taken():
            started.set()
            go_on.wait(10)
            order.append(str(name))
            time.sleep(0.02)

    with ThreadPoolExecutor(4) as pool:
        for name in range(4):
            pool.submit(work, name)
        assert started.wait(10)
        go_on.set()
        with turn.ahead(10.0):
            order.append("ahead")
    assert order.index("ahead") <= 1, order
    assert sorted(order) == ["0", "1", "2", "3", "ahead"]


def test_who_never_gives_the_turn_back_is_not_waited_for() -> None:
    turn, inside, go_on = Turn(), threading.Event(), threading.Event()

    def hang() -> None:
        with turn.taken():
            inside.set()
            go_on.wait(10)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(hang)
        assert inside.wait(10)
        begin = time.monotonic()
        with turn.ahead(0.05):
            assert time.monotonic() - begin < 5.0
        go_on.set()
    with turn.taken():
        assert turn.is_wanted
