"""Taking turns: work that only computes is done by one thread at a time.

Threads that take the interpreter from each other are slower together than one, and none of them would be
done before the last.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turn:
    """A lock that knows whether anybody has or wants it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted: list[None] = []  # its two operations are atomic

    @property
    def is_wanted(self) -> bool:
        return bool(self._wanted)

    @contextmanager
    def taken(self) -> Iterator[None]:
        self._wanted.append(None)
        try:
            with self._lock:
                yield
        finally:
            self._wanted.pop()
