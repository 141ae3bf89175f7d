"""Where the engine's thread spends its time: the parts of a step, by the clock of the host."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Wrap = Callable[[str, Callable[..., Any]], Callable[..., Any]]
"""From a part's name and its function to one that does the same and watches."""


class HostTime:
    """Seconds and calls by part, on a ``clock`` in seconds. ``wait``: the host stood still for the device."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self._clock = clock

    def timed(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            begin = self._clock()
            try:
                return call(*arguments, **options)
            finally:
                self.seconds[part] += self._clock() - begin
                self.calls[part] += 1

        return wrapped

    def table(self) -> str:
        """One line a part: microseconds a call, and calls."""
        lines = [f"{'part':<12}{'us a call':>12}{'calls':>8}{'ms':>10}"]
        for part, seconds in sorted(self.seconds.items(), key=lambda entry: -entry[1]):
            count = self.calls[part]
            lines.append(f"{part:<12}{seconds / count * 1e6:>12.0f}{count:>8}{seconds * 1e3:>10.1f}")
        return "\n".join(lines)


@contextmanager
def host_time(engine: Any, clock: Callable[[], float] = time.perf_counter) -> Iterator[HostTime]:
    """Watch an engine. ``step`` holds the others; the rest of it is bookkeeping. ``clock`` gives seconds."""
    watch = HostTime(clock)
    with watched(engine, watch.timed):
        yield watch


@contextmanager
def watched(engine: Any, wrap: Wrap, *more: tuple[Any, str, str]) -> Iterator[None]:
    """Every part of an engine's step through ``wrap``, and ``more``: owner, attribute and name."""
    runner, scheduler = engine._runner, engine._scheduler
    submit = wrap("submit", runner.submit)

    def submit_and_watch(output: Any) -> Any:
        step = submit(output)
        step.result = wrap("wait", step.result)
        return step

    parts = [
        (engine, "step", "step"),
        (engine, "_extend", "extend"),
        (scheduler, "schedule", "schedule"),
        (scheduler, "update", "update"),
        *more,
    ]
    for owner, attribute, name in parts:
        setattr(owner, attribute, wrap(name, getattr(owner, attribute)))
    runner.submit = submit_and_watch
    try:
        yield
    finally:
        for owner, attribute, _ in (*parts, (runner, "submit", "")):
            delattr(owner, attribute)
