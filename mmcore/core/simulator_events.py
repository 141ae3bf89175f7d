"""Simulated time: what happens when, and workers that take as long as they are told."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

Action = Callable[[], None]


class EventQueue:
    """Actions in order of their time, those of one time in the order in which they were planned."""

    def __init__(self) -> None:
        self._events: list[tuple[float, int, Action]] = []
        self._numbers = count()
        self.now = 0.0

    def at(self, time: float, action: Action) -> None:
        heappush(self._events, (time, next(self._numbers), action))

    @property
    def next_time(self) -> float | None:
        return self._events[0][0] if self._events else None

    def advance(self, time: float) -> None:
        """Let time pass, each event at its own moment."""
        while self._events and self._events[0][0] <= time:
            at, _, action = heappop(self._events)
            self.now = max(self.now, at)
            action()
        self.now = max(self.now, time)


@dataclass(frozen=True, slots=True)
class Job:
    """Takes a worker ``seconds``; then ``done`` is called. Skipped where ``is_wanted`` says no."""

    seconds: float
    done: Action
    is_wanted: Callable[[], bool]


class Workers:
    """So many at once, in order of arrival."""

    def __init__(self, number: int, events: EventQueue) -> None:
        self._free = number
        self._events = events
        self._queue: deque[Job] = deque()
        self.busy_seconds = 0.0

    def submit(self, job: Job) -> None:
        self._queue.append(job)
        self._start()

    def _start(self) -> None:
        while self._free and self._queue:
            job = self._queue.popleft()
            if job.is_wanted():
                self._free -= 1
                self.busy_seconds += job.seconds
                self._events.at(self._events.now + job.seconds, lambda job=job: self._finish(job))  # type: ignore[misc]

    def _finish(self, job: Job) -> None:
        self._free += 1
        job.done()
        self._start()
