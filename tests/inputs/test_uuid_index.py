"""The UUID index is bounded, and one salt never sees another's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcore.errors import MediaMissError
from mmcore.inputs.media import OpenedMedia
from mmcore.inputs.uuid_index import UuidIndex
from mmcore.request import EncodedSource, MediaInfo


def media(size: int, mark: int = 0) -> OpenedMedia:
    return OpenedMedia(EncodedSource(bytes([mark]) * size), MediaInfo("image"), bytes([mark]))


def test_salts_and_modalities_are_apart() -> None:
    index = UuidIndex()
    index.remember("a", "image", "u", media(1))
    assert index.find("a", "image", "u").digest == b"\0"
    for salt, modality, uuid in (
        ("b", "image", "u"),
        ("", "image", "u"),
        ("a", "audio", "u"),
        ("a", "image", "v"),
    ):
        with pytest.raises(MediaMissError, match="send the content"):
            index.find(salt, modality, uuid)


def test_the_newest_content_counts() -> None:
    index = UuidIndex()
    index.remember("", "image", "u", media(1, 1))
    index.remember("", "image", "u", media(1, 2))
    assert index.find("", "image", "u").digest == b"\2"
    assert len(index) == 1


def test_what_was_used_last_stays_longest() -> None:
    index = UuidIndex(capacity_bytes=100)
    for number in range(4):
        index.remember("", "image", str(number), media(25, number))
    index.find("", "image", "0")
    index.remember("", "image", "4", media(25, 4))
    assert index.find("", "image", "0").digest == b"\0"
    with pytest.raises(MediaMissError):
        index.find("", "image", "1")


def test_content_larger_than_the_index_replaces_and_is_not_kept() -> None:
    index = UuidIndex(capacity_bytes=10)
    index.remember("", "image", "u", media(5, 1))
    index.remember("", "image", "u", media(50, 2))
    with pytest.raises(MediaMissError):
        index.find("", "image", "u")


@given(
    sizes=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 60)), max_size=40),
    capacity=st.integers(1, 5),
)
def test_it_is_bounded(sizes: list[tuple[int, int]], capacity: int) -> None:
    index, last = UuidIndex(capacity_bytes=100, capacity=capacity), {}
    for name, size in sizes:
        index.remember("", "image", str(name), media(size, name))
        last[name] = size
    held = [name for name in last if _knows(index, name)]
    assert len(index) == len(held) <= capacity
    assert sum(last[name] for name in held) <= 100


def _knows(index: UuidIndex, name: int) -> bool:
    try:
        return index.find("", "image", str(name)).digest == bytes([name])
    except MediaMissError:
        return False
