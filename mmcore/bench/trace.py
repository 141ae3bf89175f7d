"""A Chrome trace of the engine's steps, read back: which mechanism host and device spent their time on."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PREFIX = "mmcore."
"""Ranges that the engine is marked with: ``mmcore.`` and the mechanism."""
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
CALLS = ("cuda_runtime", "cuda_driver")

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Mechanism:
    """Milliseconds of one mechanism, without what lies within it under another name."""

    name: str
    calls: int
    host_ms: float
    launch_ms: float
    """Of the host's: handing work to the device."""
    device_ms: float
    """Of the work that was handed over in it."""


class Ranges:
    """Which mechanism the engine's thread was in at any moment: the innermost range."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.calls: dict[str, int] = defaultdict(int)
        edges: list[tuple[float, int, float, str]] = []
        for event in events:
            name = event["name"].removeprefix(PREFIX)
            self.calls[name] += 1
            begin, length = float(event["ts"]), float(event["dur"])
            edges += [(begin, 1, -length, name), (begin + length, 0, -length, name)]
        self._starts: list[float] = []
        self._names: list[str] = []
        within: list[str] = []
        for moment, opens, _, name in sorted(edges):
            if opens:
                within.append(name)
            else:
                del within[len(within) - 1 - within[::-1].index(name)]
            self._starts.append(moment)
            self._names.append(within[-1] if within else "")

    def at(self, moment: float) -> str:
        """Empty between steps."""
        place = bisect_right(self._starts, moment) - 1
        return self._names[place] if place >= 0 else ""

    def host_us(self) -> Mapping[str, float]:
        spent: dict[str, float] = defaultdict(float)
        for name, begin, end in zip(self._names, self._starts, self._starts[1:], strict=False):
            spent[name] += end - begin
        return spent


def _correlation(event: Event) -> int:
    """What a call and the work that it started share; -1 where a trace does not say."""
    return int(event.get("args", {}).get("correlation", -1))


def mechanisms(events: Sequence[Event]) -> list[Mechanism]:
    """Of a trace's events, the one that took longest on the host first; what no range holds is left out."""
    whole = [event for event in events if event.get("ph") == "X"]
    ranges = Ranges(e for e in whole if e.get("cat") == "user_annotation" and e["name"].startswith(PREFIX))
    launched: dict[int, str] = {}
    launch_us: dict[str, float] = defaultdict(float)
    for event in whole:
        if event.get("cat") in CALLS:
            name = ranges.at(float(event["ts"]))
            launched[_correlation(event)] = name
            launch_us[name] += float(event["dur"]) if "Launch" in event["name"] else 0.0
    device_us: dict[str, float] = defaultdict(float)
    for event in whole:
        if event.get("cat") in ON_DEVICE:
            device_us[launched.get(_correlation(event), "")] += float(event["dur"])
    host_us = ranges.host_us()
    found = [
        Mechanism(name, calls, host_us[name] / 1e3, launch_us[name] / 1e3, device_us[name] / 1e3)
        for name, calls in ranges.calls.items()
    ]
    return sorted(found, key=lambda mechanism: -mechanism.host_ms)
