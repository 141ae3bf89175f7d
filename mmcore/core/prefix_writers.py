"""Who is computing a block that others wait for: prompts with a common beginning are computed once.

A request whose beginning another one computes at this moment would find nothing in the cache and compute it
again beside it. It waits instead, a step or a few, if so much is to be gained.
"""

from __future__ import annotations

from mmcore.core.sequence import Sequence

WORTH_WAITING = 4
"""Blocks; for fewer it starts at once."""


class PrefixWriters:
    """By block key, the running sequence that computes it."""

    def __init__(self) -> None:
        self._writers: dict[bytes, Sequence] = {}
        self._announced: dict[Sequence, list[bytes]] = {}

    def announce(self, sequence: Sequence, num_cached: int) -> None:
        """It starts, and computes all full blocks of its tokens but the first ``num_cached``."""
        keys = [key for key in sequence.block_keys[num_cached:] if key not in self._writers]
        self._announced[sequence] = keys
        self._writers.update(dict.fromkeys(keys, sequence))

    def withdraw(self, sequence: Sequence) -> None:
        """It lets go of its blocks."""
        for key in self._announced.pop(sequence, ()):
            del self._writers[key]

    def awaited_key(self, sequence: Sequence, num_cached: int) -> bytes | None:
        """The key of a block that another one computes, by which waiting is worth it."""
        place = num_cached + WORTH_WAITING - 1
        if place >= len(sequence.block_keys):
            return None
        key = sequence.block_keys[place]
        return key if self._writers.get(key, sequence) is not sequence else None
