"""How long a start takes, stage by stage."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)


class Stages:
    """Seconds of each stage of a start, in order; ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: dict[str, float] = {}
        self._clock = clock

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        begin = self._clock()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + self._clock() - begin

    def log(self) -> None:
        """One line: the whole, and its parts."""
        parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in self.seconds.items())
        logger.info("ready after %.2f s: %s", sum(self.seconds.values()), parts)
