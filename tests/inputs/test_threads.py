"""Threads that run a plugin's code: in order, forgotten when closed, and never what a process waits for."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref

import pytest

from mmcore.inputs.threads import CallPool

HANGS = """
import threading
from mmcore.inputs import threads

threads.CLOSE_SECONDS = 0.1
pool, inside = threads.CallPool(2, "mmcore-prepare"), threading.Event()
pool.submit(lambda: (inside.set(), threading.Event().wait()))
inside.wait()
if {closed}:
    pool.close(wait=True)
"""


class Prompt:
    """Something that can be watched."""


def test_calls_are_made_in_order_and_held_by_nobody() -> None:
    pool, seen, done = CallPool(1, "mmcore-prepare"), [], threading.Event()
    prompt = Prompt()
    gone = weakref.ref(prompt)
    pool.submit(lambda held=prompt: seen.append(type(held)))  # type: ignore[misc]
    for n in range(5):
        pool.submit(lambda n=n: seen.append(n))  # type: ignore[misc]
    pool.submit(done.set)
    assert done.wait(10)
    del prompt
    gc.collect()
    assert gone() is None
    assert seen == [Prompt, 0, 1, 2, 3, 4]
    pool.close(wait=True)


def test_a_closed_pool_ends_what_it_is_in_and_forgets_what_waits() -> None:
    pool, inside, gate = CallPool(1, "mmcore-closed"), threading.Event(), threading.Event()
    seen: list[str] = []

    def first() -> None:
        inside.set()
        gate.wait(10)
        seen.append("first")

    pool.submit(first)
    pool.submit(lambda: seen.append("second"))
    assert inside.wait(10)
    threading.Timer(0.05, gate.set).start()
    pool.close(wait=True)
    assert seen == ["first"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("mmcore-closed")]


@pytest.mark.parametrize("closed", [False, True])
def test_a_process_ends_while_a_call_hangs(closed: bool) -> None:
    ended = subprocess.run([sys.executable, "-c", HANGS.format(closed=closed)], timeout=20, check=False)
    assert ended.returncode == 0
