"""The pool of KV blocks: who holds which, which are cached, which go next.

    free         nobody holds it and its content is worthless
    referenced   `refs` > 0: that many block tables contain it
    cached       nobody holds it, but its content is known by a key; the least recently used is evicted first

Each block is in exactly one of the three. A key names the content of at most one block.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Protocol


class BlockObserver(Protocol):
    """Sees what enters and leaves the cache, for a router or a second tier; it never steers."""

    def stored(self, block: int, key: bytes) -> None: ...
    def removed(self, block: int, key: bytes) -> None: ...


class BlockPool:
    """``num_blocks`` blocks of ``block_size`` tokens each, numbered from 0."""

    def __init__(self, num_blocks: int, block_size: int, observer: BlockObserver | None = None) -> None:
        assert num_blocks > 0
        assert block_size > 0
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._observer = observer
        self._refs = [0] * num_blocks
        self._keys: list[bytes | None] = [None] * num_blocks
        self._blocks: dict[bytes, int] = {}
        self._free = list(range(num_blocks - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()

    @property
    def num_available(self) -> int:
        """Blocks that `allocate` can give out, evicting cached ones."""
        return len(self._free) + len(self._cached)

    def is_cached(self, block: int) -> bool:
        """Held by nobody, content known."""
        return block in self._cached

    def is_writable(self, block: int) -> bool:
        """Held by one table only, and no key promises its content to others."""
        return self._refs[block] == 1 and self._keys[block] is None

    def find(self, key: bytes) -> int | None:
        """The block with this content, referenced or cached."""
        return self._blocks.get(key)

    def allocate(self, count: int) -> list[int]:
        """``count`` blocks of unknown content, one reference each. The caller checked `num_available`."""
        blocks = [self._free.pop() if self._free else self._evict() for _ in range(count)]
        for block in blocks:
            self._refs[block] = 1
        return blocks

    def retain(self, blocks: Iterable[int]) -> None:
        """One more reference to each."""
        for block in blocks:
            if self._refs[block] == 0:
                del self._cached[block]
            self._refs[block] += 1

    def release(self, blocks: list[int]) -> None:
        """One reference less to each. The end of a chain is evicted first: the rest still serves."""
        for block in reversed(blocks):
            self._refs[block] -= 1
            if self._refs[block] == 0:
                self._retire(block)

    def register(self, block: int, key: bytes) -> None:
        """Promise that ``block`` holds the content ``key`` names and is not written again.

        When another block already does, that one stays the one to share.
        """
        if key in self._blocks or self._keys[block] is not None:
            return
        self._blocks[key] = block
        self._keys[block] = key
        if self._observer is not None:
            self._observer.stored(block, key)

    def _retire(self, block: int) -> None:
        if self._keys[block] is None:
            self._free.append(block)
        else:
            self._cached[block] = None

    def _evict(self) -> int:
        block, _ = self._cached.popitem(last=False)
        key = self._keys[block]
        assert key is not None
        self._keys[block] = None
        del self._blocks[key]
        if self._observer is not None:
            self._observer.removed(block, key)
        return block

    def check_integrity(self, references: dict[int, int]) -> None:
        """``references`` counts, for each block in a table, the tables that contain it."""
        free = set(self._free)
        assert len(free) == len(self._free), "a block is free twice"
        for block in range(self.num_blocks):
            refs, key = self._refs[block], self._keys[block]
            assert refs == references.get(block, 0), f"block {block}: {refs} references counted"
            assert (block in free) == (refs == 0 and key is None), f"block {block} is free and is not"
            assert (block in self._cached) == (refs == 0 and key is not None), f"block {block}: cached?"
            assert key is None or self._blocks.get(key) == block, f"block {block}: its key leads elsewhere"
        assert sum(key is not None for key in self._keys) == len(self._blocks), "a key leads nowhere"
        assert len(free) + len(self._cached) + len(references) == self.num_blocks, "blocks got lost"
