"""Where the engine's thread spends its time: the parts of a step, by the clock of the host."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class HostTime:
    """Seconds and calls by part. ``wait`` is the time in which the host stood still for the device."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)

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
    runner, scheduler = engine._runner, engine._scheduler
    submit = watch.timed("submit", runner.submit)

    def submit_and_watch(output: Any) -> Any:
        step = submit(output)
        step.result = watch.timed("wait", step.result)
        return step

    engine.step = watch.timed("step", engine.step)
    runner.submit = submit_and_watch
    scheduler.schedule = watch.timed("schedule", scheduler.schedule)
    scheduler.update = watch.timed("update", scheduler.update)
    engine._extend = watch.timed("extend", engine._extend)
    try:
        yield watch
    finally:
        for owner, name in (
            (engine, "step"),
            (engine, "_extend"),
            (runner, "submit"),
            (scheduler, "schedule"),
            (scheduler, "update"),
        ):
            delattr(owner, name)
