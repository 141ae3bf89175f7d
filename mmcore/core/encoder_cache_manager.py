"""Which encoder outputs are on the device, counted in bytes.

    unconfirmed   being written by a step that has not come back; only its writer's request may read it
    referenced    sequences still have rows of it to compute
    idle          complete, nobody needs it; the least recently used is evicted first

An entry is a number the runner keeps rows under; numbers are never used twice.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class EncoderEntry:
    """One item's rows. ``writer`` is whoever encodes it, None once that is known to have worked."""

    number: int
    key: bytes
    size: int
    writer: object | None
    refs: int = 1

    @property
    def is_busy(self) -> bool:
        return self.refs > 0 or self.writer is not None


class EncoderCacheManager:
    """Entries by encoder key, within ``capacity_bytes``."""

    def __init__(self, capacity_bytes: int) -> None:
        assert capacity_bytes >= 0
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self._busy_bytes = 0
        self._entries: dict[bytes, EncoderEntry] = {}
        self._idle: OrderedDict[bytes, EncoderEntry] = OrderedDict()
        self._freed: list[int] = []
        self._next_number = 0

    def find(self, key: bytes) -> EncoderEntry | None:
        return self._entries.get(key)

    def fits(self, hits: Iterable[EncoderEntry], new_bytes: int) -> bool:
        """Whether ``hits`` can be held and ``new_bytes`` reserved beside all that is busy now."""
        needed = new_bytes + sum(entry.size for entry in hits if not entry.is_busy)
        return self._busy_bytes + needed <= self.capacity_bytes

    def acquire(self, entry: EncoderEntry) -> None:
        """One more reference: the entry stays until it is released as often."""
        if not entry.is_busy:
            del self._idle[entry.key]
            self._busy_bytes += entry.size
        entry.refs += 1

    def reserve(self, key: bytes, size: int, writer: object) -> EncoderEntry:
        """A new entry with one reference, for ``writer`` to fill in this step. The caller asked `fits`."""
        while self.used_bytes + size > self.capacity_bytes:
            self._remove(self._idle.popitem(last=False)[1])
        entry = EncoderEntry(self._next_number, key, size, writer)
        self._next_number += 1
        self._entries[key] = entry
        self.used_bytes += size
        self._busy_bytes += size
        return entry

    def release(self, entry: EncoderEntry) -> None:
        entry.refs -= 1
        self._settle(entry)

    def confirm(self, entry: EncoderEntry) -> None:
        """The step that wrote it came back: from now on anybody may read it."""
        entry.writer = None
        self._settle(entry)

    def discard(self, entry: EncoderEntry) -> None:
        """The step that wrote it failed. Nobody but the writer had it, and the writer has let go."""
        assert entry.refs == 0
        assert entry.writer is not None
        self._busy_bytes -= entry.size
        self._remove(entry)

    def take_freed(self) -> list[int]:
        """Numbers whose rows are to be dropped, told once."""
        freed, self._freed = self._freed, []
        return freed

    def _settle(self, entry: EncoderEntry) -> None:
        if not entry.is_busy:
            self._busy_bytes -= entry.size
            self._idle[entry.key] = entry

    def _remove(self, entry: EncoderEntry) -> None:
        del self._entries[entry.key]
        self.used_bytes -= entry.size
        self._freed.append(entry.number)

    def check_integrity(self, references: Counter[int]) -> None:
        """``references`` counts, for each entry number, the items of sequences that hold it."""
        entries = self._entries.values()
        assert self.used_bytes == sum(e.size for e in entries) <= self.capacity_bytes
        assert self._busy_bytes == sum(e.size for e in entries if e.is_busy)
        assert {e.number: e.refs for e in entries if e.refs} == dict(references)
        for key, entry in self._entries.items():
            assert entry.key == key
            assert (key in self._idle) == (not entry.is_busy), f"entry {entry.number}: idle and busy"
        assert set(self._idle) <= set(self._entries)
