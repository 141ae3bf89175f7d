"""Blocks are free, referenced or cached, and a key names one block."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from mmcore.core.block_pool import BlockPool


class Recorder:
    def __init__(self) -> None:
        self.seen: list[tuple[str, int, bytes]] = []

    def stored(self, block: int, key: bytes) -> None:
        self.seen.append(("stored", block, key))

    def removed(self, block: int, key: bytes) -> None:
        self.seen.append(("removed", block, key))


def test_released_blocks_without_a_key_are_free_again() -> None:
    pool = BlockPool(4, 16)
    blocks = pool.allocate(3)
    assert pool.num_available == 1
    pool.release(blocks)
    assert pool.num_available == 4
    assert not any(pool.is_cached(block) for block in blocks)
    pool.check_integrity({})


def test_a_cached_block_is_found_until_it_is_needed() -> None:
    pool = BlockPool(2, 16)
    (block,) = pool.allocate(1)
    pool.register(block, b"key")
    pool.release([block])
    assert pool.find(b"key") == block
    assert pool.is_cached(block)
    assert sorted(pool.allocate(2)) == [0, 1]
    assert pool.find(b"key") is None


def test_the_end_of_a_chain_is_evicted_first() -> None:
    pool = BlockPool(3, 16)
    chain = pool.allocate(3)
    for index, block in enumerate(chain):
        pool.register(block, bytes([index]))
    pool.release(chain)
    pool.allocate(1)
    assert [pool.find(bytes([index])) is not None for index in range(3)] == [True, True, False]


def test_least_recently_used_goes_first() -> None:
    pool = BlockPool(2, 16)
    old, new = pool.allocate(2)
    pool.register(old, b"old")
    pool.register(new, b"new")
    pool.release([old])
    pool.release([new])
    pool.retain([old])
    pool.release([old])
    pool.allocate(1)
    assert (pool.find(b"old"), pool.find(b"new")) == (old, None)


def test_the_first_block_of_a_key_stays_the_one_to_share() -> None:
    pool = BlockPool(2, 16)
    first, second = pool.allocate(2)
    pool.register(first, b"key")
    pool.register(second, b"key")
    assert pool.find(b"key") == first
    pool.release([first, second])
    pool.check_integrity({})
    assert pool.is_cached(first)
    assert not pool.is_cached(second)


def test_writable_is_held_once_and_promised_to_nobody() -> None:
    pool = BlockPool(2, 16)
    shared, promised = pool.allocate(2)
    assert pool.is_writable(shared)
    pool.retain([shared])
    pool.register(promised, b"key")
    assert not pool.is_writable(shared)
    assert not pool.is_writable(promised)


def test_the_observer_sees_what_enters_and_leaves() -> None:
    seen = Recorder()
    pool = BlockPool(1, 16, seen)
    pool.register(pool.allocate(1)[0], b"a")
    pool.release([0])
    pool.allocate(1)
    assert seen.seen == [("stored", 0, b"a"), ("removed", 0, b"a")]


@given(st.lists(st.tuples(st.sampled_from("arkR"), st.integers(0, 5)), max_size=60))
def test_any_order_of_calls_keeps_the_pool_whole(calls: list[tuple[str, int]]) -> None:
    """a: allocate, r: release, k: register under a key, R: retain what a key finds."""
    pool = BlockPool(6, 4)
    held: list[int] = []
    for call, number in calls:
        if call == "a" and pool.num_available > number:
            held += pool.allocate(number)
        elif call == "r" and held:
            pool.release([held.pop(number % len(held))])
        elif call == "k" and held:
            pool.register(held[number % len(held)], bytes([number]))
        elif call == "R" and (block := pool.find(bytes([number]))) is not None:
            pool.retain([block])
            held.append(block)
        pool.check_integrity(Counter(held))
