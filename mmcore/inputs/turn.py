"""Taking turns: work that only computes is done by one thread at a time.

Threads that take the interpreter from each other are slower together than one, and none of them would be
done before the last. Who launches a step on a device, a call at a time, suffers most: each call may have to
wait for the interpreter, so it goes ahead of all others.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turn:
    """A lock that knows whether anybody has or wants it, with a way in ahead of those who wait."""

    def __init__(self) -> None:
        self._queue = threading.Lock()
        self._next = threading.Lock()
        self._lock = threading.Lock()
        self._wanted: list[None] = []  # its two operations are atomic

    @property
    def is_wanted(self) -> bool:
        return bool(self._wanted)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Behind all who came before."""
        self._wanted.append(None)
        try:
            with self._queue:  # one of them at most is next
                with self._next:
                    self._lock.acquire()
                try:
                    yield
                finally:
                    self._lock.release()
        finally:
            self._wanted.pop()

    @contextmanager
    def ahead(self, seconds: float) -> Iterator[None]:
        """Before all who wait. Who has the turn is waited for so long at most: then both work."""
        held = False
        if self._wanted and self._next.acquire(timeout=seconds):
            held = self._lock.acquire(timeout=seconds)
            self._next.release()
        try:
            yield
        finally:
            if held:
                self._lock.release()
