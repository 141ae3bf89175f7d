"""Threads that run a plugin's code: it may hang, and must not keep anybody from ending."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

_log = logging.getLogger(__name__)
CLOSE_SECONDS = 5.0
"""How long closing waits for what is under way."""


def start_threads(work: Callable[[], None], count: int, name: str) -> tuple[threading.Thread, ...]:
    """``count`` threads, at least one, named ``name-0`` and on; they do not keep the process from ending."""
    threads = tuple(
        threading.Thread(target=work, name=f"{name}-{n}", daemon=True) for n in range(max(1, count))
    )
    for thread in threads:
        thread.start()
    return threads


def join_threads(threads: Sequence[threading.Thread]) -> None:
    """Wait for their end, `CLOSE_SECONDS` in all; those still busy then are left behind with a warning."""
    deadline = time.monotonic() + CLOSE_SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    left = [thread.name for thread in threads if thread.is_alive()]
    if left:
        _log.warning("%s did not end within %g s: left behind", ", ".join(left), CLOSE_SECONDS)


class CallPool:
    """Threads that call what they are given, first come, first called. The calls raise nothing."""

    def __init__(self, workers: int, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads = start_threads(self._work, workers, name)

    def submit(self, call: Callable[[], None]) -> None:
        self._calls.put(call)

    def close(self, *, wait: bool) -> None:
        """End the threads after the calls that they are in; calls that wait for one are forgotten."""
        try:
            while True:
                self._calls.get_nowait()
        except Empty:
            pass
        for _ in self._threads:
            self._calls.put(None)
        if wait:
            join_threads(self._threads)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call  # an idle thread holds no prompt
