"""Small requests with the keys that the inputs room would give them, for the scheduler's tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from mmcore.core.sequence import StopConditions
from mmcore.request import (
    CrossStates,
    EncodeCost,
    EncodedSource,
    ItemPlan,
    PlaceholderRange,
    PreparedItem,
    PreparedRequest,
    Rows,
)
from mmcore.sampling_params import SamplingParams

PAD = 99
"""The placeholder token, the same for all items."""

Piece = int | tuple[int, int]
"""A token id, or (picture, rows): the picture's next rows."""


def key_of(*values: Any) -> bytes:
    return blake2b(repr(values).encode(), digest_size=32).digest()


def block_key(parent: bytes, token_ids: Sequence[int], media: Sequence[tuple[bytes, int]]) -> bytes:
    return key_of(parent, tuple(token_ids), tuple(media))


def context_key(encoder_keys: Sequence[bytes], text_ids: Sequence[int]) -> bytes:
    return key_of("context", tuple(encoder_keys), tuple(text_ids))


@dataclass(frozen=True)
class Picture:
    """``number`` is its content; equal numbers are one picture."""

    number: int
    rows: int
    atomic: bool = False
    bytes_per_row: int = 10
    work: int | None = None

    def prepare(self, as_file: bool = True) -> PreparedItem:
        data = self.number.to_bytes(4, "little")
        return PreparedItem(
            modality="image",
            source=EncodedSource(data),
            content_digest=key_of("content", self.number),
            plan=ItemPlan((Rows(self.rows),), self.rows, 1, atomic=self.atomic),
            cost=EncodeCost(self.rows if self.work is None else self.work, self.rows * self.bytes_per_row),
            processor_key=key_of("processor", self.number),
            encoder_key=key_of("encoder", self.number),
        )


def make_request(
    name: str,
    pieces: Sequence[int | Picture],
    *,
    n: int = 1,
    priority: int = 0,
    salt: str = "",
) -> PreparedRequest:
    """Tokens and whole pictures, in order."""
    tokens: list[int] = []
    items: list[Picture] = []
    ranges: list[PlaceholderRange] = []
    for piece in pieces:
        if isinstance(piece, Picture):
            ranges.append(PlaceholderRange(len(tokens), piece.rows, len(items), 0))
            items.append(piece)
            tokens += [PAD] * piece.rows
        else:
            tokens.append(piece)
    return _request(name, tokens, items, tuple(ranges), n, priority, key_of("root", salt))


def make_interleaved_request(
    name: str, first: Picture, second: Picture, *, before: Sequence[int] = (1,), between: int = 5
) -> PreparedRequest:
    """Rows of two items by turns: first, second, first, second, each in two parts."""
    tokens = list(before)
    ranges: list[PlaceholderRange] = []
    for part in range(2):
        for item, picture in enumerate((first, second)):
            half = picture.rows // 2
            row, length = (0, half) if part == 0 else (half, picture.rows - half)
            ranges.append(PlaceholderRange(len(tokens), length, item, row))
            tokens += [PAD] * length + [between]
    return _request(name, tokens, [first, second], tuple(ranges), 1, 0, key_of("root", ""))


def make_cross_request(
    name: str,
    tokens: Sequence[int],
    items: Sequence[Picture],
    *,
    text_ids: Sequence[int] = (),
    n: int = 1,
    priority: int = 0,
    work: int = 0,
    context: Callable[[Sequence[bytes], Sequence[int]], bytes] = context_key,
) -> PreparedRequest:
    """A request of a cross-attention family, whose states also depend on ``text_ids`` and cost ``work``."""
    key = context([key_of("encoder", item.number) for item in items], text_ids)
    length = 1 + sum(item.rows for item in items) + len(text_ids)
    cross = CrossStates(key, length, tuple(text_ids), work)
    return _request(name, list(tokens), list(items), (), n, priority, key_of("root", key), cross)


def _request(
    name: str,
    tokens: list[int],
    items: list[Picture],
    ranges: tuple[PlaceholderRange, ...],
    n: int,
    priority: int,
    root: bytes,
    cross: CrossStates | None = None,
) -> PreparedRequest:
    return PreparedRequest(
        request_id=name,
        token_ids=tuple(tokens),
        sampling=SamplingParams(n=n),
        root_key=root,
        items=tuple(item.prepare() for item in items),
        ranges=ranges,
        cross=cross,
        priority=priority,
    )


def with_beams(request: PreparedRequest, width: int, **options: Any) -> PreparedRequest:
    params = SamplingParams(use_beam_search=True, beam_width=width, **options)
    return replace(request, sampling=params)


def stop_at(max_tokens: int, *stop_ids: int, min_tokens: int = 0) -> StopConditions:
    return StopConditions(frozenset(stop_ids), max_tokens, min_tokens)
