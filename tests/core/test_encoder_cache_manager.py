"""Encoder entries: room by bytes, references, who may read what is just being written."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcore.core.encoder_cache_manager import EncoderCacheManager, EncoderEntry

WRITER = object()


def complete(cache: EncoderCacheManager, key: bytes, size: int) -> EncoderEntry:
    entry = cache.reserve(key, size, WRITER)
    cache.confirm(entry)
    cache.release(entry)
    return entry


def test_an_idle_entry_makes_room_and_its_number_is_told_once() -> None:
    cache = EncoderCacheManager(100)
    old = complete(cache, b"old", 60)
    assert cache.fits([], 50)
    cache.reserve(b"new", 50, WRITER)
    assert cache.find(b"old") is None
    assert cache.take_freed() == [old.number]
    assert cache.take_freed() == []


def test_a_referenced_entry_keeps_its_room() -> None:
    cache = EncoderCacheManager(100)
    entry = complete(cache, b"a", 60)
    cache.acquire(entry)
    assert not cache.fits([], 50)
    assert cache.fits([entry], 40)


def test_a_hit_that_nobody_holds_takes_room_too() -> None:
    cache = EncoderCacheManager(100)
    entry = complete(cache, b"a", 60)
    assert not cache.fits([entry], 50)


def test_least_recently_used_goes_first() -> None:
    cache = EncoderCacheManager(100)
    first, second = complete(cache, b"first", 50), complete(cache, b"second", 50)
    cache.acquire(first)
    cache.release(first)
    cache.reserve(b"third", 50, WRITER)
    assert cache.take_freed() == [second.number]


def test_an_unconfirmed_entry_is_not_evicted_even_without_references() -> None:
    cache = EncoderCacheManager(100)
    entry = cache.reserve(b"a", 60, WRITER)
    cache.release(entry)
    assert not cache.fits([], 50)
    cache.confirm(entry)
    assert cache.fits([], 50)


def test_a_discarded_entry_is_gone() -> None:
    cache = EncoderCacheManager(100)
    entry = cache.reserve(b"a", 60, WRITER)
    cache.release(entry)
    cache.discard(entry)
    assert cache.find(b"a") is None
    assert cache.take_freed() == [entry.number]
    assert cache.used_bytes == 0


def test_what_is_confirmed_or_held_is_not_discarded() -> None:
    cache = EncoderCacheManager(100)
    with pytest.raises(AssertionError):
        cache.discard(cache.reserve(b"held", 10, WRITER))
    with pytest.raises(AssertionError):
        cache.discard(complete(cache, b"confirmed", 10))


@given(st.lists(st.tuples(st.sampled_from("racd"), st.integers(0, 4)), max_size=60))
def test_any_order_of_calls_keeps_the_cache_whole(calls: list[tuple[str, int]]) -> None:
    """r: reserve, a: acquire a hit, c: come back, d: drop a reference."""
    cache = EncoderCacheManager(100)
    held: list[EncoderEntry] = []
    for call, number in calls:
        entry = cache.find(bytes([number]))
        if call == "r" and entry is None and cache.fits([], 15 * number):
            held.append(cache.reserve(bytes([number]), 15 * number, WRITER))
        elif call == "a" and entry is not None and cache.fits([entry], 0):
            cache.acquire(entry)
            held.append(entry)
        elif call == "c" and entry is not None and entry.writer is not None:
            cache.confirm(entry)
        elif call == "d" and held:
            cache.release(held.pop(number % len(held)))
        cache.check_integrity(Counter(entry.number for entry in held))
