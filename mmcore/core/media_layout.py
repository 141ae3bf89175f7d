"""Where a request's items lie among its tokens: the arithmetic of ranges, computed once at admission."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from mmcore.request import PlaceholderRange, PreparedRequest

MediaKey = tuple[bytes, int]
"""An item's encoder key, and where its rows lie in a block as one number."""


@dataclass(frozen=True, slots=True)
class MediaLayout:
    """Ranges of one prompt, ordered by offset, and what follows from them."""

    ranges: tuple[PlaceholderRange, ...]
    ends: tuple[int, ...]
    """One past the last token of each range."""
    atomic: tuple[bool, ...]
    """By range: a chunk must not cut it."""
    item_ends: dict[int, int]
    """One past the last token of each item that has rows in the sequence."""
    groups: dict[int, tuple[int, ...]]
    """Items whose spans overlap are held together: who holds one item never waits for another to go on."""
    keys: tuple[bytes, ...]
    """Encoder key by item."""

    def first_range(self, position: int) -> int:
        """Index of the first range that ends after ``position``."""
        return bisect_right(self.ends, position)

    def uncut(self, position: int) -> int:
        """``position``, or the start of the atomic range that a cut there would go through."""
        index = self.first_range(position)
        if index < len(self.ranges) and self.atomic[index] and self.ranges[index].offset < position:
            return self.ranges[index].offset
        return position

    def media_in(self, start: int, stop: int) -> tuple[MediaKey, ...]:
        """(encoder key, place) of each range with tokens in the block [start, stop).

        The place says first row, first position and number of rows: with the tokens, all that there is to
        know about the block's rows.
        """
        return tuple(self._media_in(start, stop)) if self.ends and start < self.ends[-1] else ()

    def _media_in(self, start: int, stop: int) -> Iterator[MediaKey]:
        size = stop - start
        for index in range(self.first_range(start), len(self.ranges)):
            found = self.ranges[index]
            if found.offset >= stop:
                return
            first = max(found.offset, start)
            row = found.row + first - found.offset
            count = min(self.ends[index], stop) - first
            yield self.keys[found.item], (row * size + first - start) * (size + 1) + count


def layout_of(request: PreparedRequest) -> MediaLayout:
    ends = tuple(r.offset + r.length for r in request.ranges)
    return MediaLayout(
        ranges=request.ranges,
        ends=ends,
        atomic=tuple(request.items[r.item].plan.atomic for r in request.ranges),
        item_ends={r.item: end for r, end in zip(request.ranges, ends, strict=True)},
        groups=_cross_group(request) if request.cross else _overlapping(request.ranges),
        keys=tuple(item.encoder_key for item in request.items),
    )


def _cross_group(request: PreparedRequest) -> dict[int, tuple[int, ...]]:
    everything = tuple(range(len(request.items)))
    return dict.fromkeys(everything, everything)


def _overlapping(ranges: tuple[PlaceholderRange, ...]) -> dict[int, tuple[int, ...]]:
    last = {r.item: r.offset for r in ranges}
    groups: dict[int, tuple[int, ...]] = {}
    group: list[int] = []
    reach = -1
    for r in ranges:
        if r.offset > reach:
            group = []
        if r.item not in group:
            group.append(r.item)
        reach = max(reach, last[r.item])
        groups.update(dict.fromkeys(group, tuple(group)))
    return groups
