"""Segments or token ids, with item plans, to one sequence of token ids and its placeholder ranges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from mmcore.adapter import Adapter, Placeholder, Tokenizer
from mmcore.errors import InputError, PlaceholderMismatchError, PluginError
from mmcore.request import (
    ItemPlan,
    MediaSegment,
    Modality,
    PlaceholderRange,
    PreparedRequest,
    Rows,
    Segment,
    TextSegment,
)


@dataclass(frozen=True, slots=True)
class TokenLayout:
    """``ranges`` are ordered by offset, disjoint, and cover each item's rows once, in order."""

    token_ids: tuple[int, ...]
    ranges: tuple[PlaceholderRange, ...]


def lay_out(
    segments: Sequence[Segment], plans: Sequence[ItemPlan], adapter: Adapter, tokenizer: Tokenizer
) -> TokenLayout:
    """The k-th media segment is item k. Text between two slots is tokenised as one string."""
    draft = _Draft()
    item = 0
    groups = [(key, list(group)) for key, group in groupby(segments, key=type)]
    for number, (key, group) in enumerate(groups):
        if key is MediaSegment:
            for segment in group:
                assert isinstance(segment, MediaSegment)
                draft.add_item(item, plans[item], placeholder_of(adapter, segment.modality))
                item += 1
            continue
        before = groups[number - 1][1][-1] if number > 0 else None
        after = groups[number + 1][1][0] if number + 1 < len(groups) else None
        texts = [segment for segment in group if isinstance(segment, TextSegment)]
        draft.ids += encode_between(texts, before, after, adapter, tokenizer)
    return draft.finish()


def encode_between(
    texts: Sequence[TextSegment],
    before: Segment | None,
    after: Segment | None,
    adapter: Adapter,
    tokenizer: Tokenizer,
) -> tuple[int, ...]:
    """Text tokenised as it stands beside its slots: a tokenizer may treat the start of a text in a way of
    its own, or let a placeholder swallow a blank."""
    edges = [_edge(segment, adapter, tokenizer) for segment in (before, after)]
    padded = [edge[0] if edge else TextSegment("") for edge in edges]
    ids = tokenizer.encode_segments([padded[0], *texts, padded[1]])
    start = 1 if edges[0] and ids[:1] == (edges[0][1],) else 0
    stop = len(ids) - (1 if edges[1] and ids[-1:] == (edges[1][1],) else 0)
    return ids[start:stop]


def lay_out_tokens(
    token_ids: Sequence[int], modalities: Sequence[Modality], plans: Sequence[ItemPlan], adapter: Adapter
) -> TokenLayout:
    """Ids with one placeholder id an item, or already as many as its rows.

    Items come in the order of ``modalities``. Raises `PlaceholderMismatchError`.
    """
    expanded = _expanded(token_ids, modalities, plans, adapter)
    if expanded is not None:
        return expanded
    slots = slot_modalities(token_ids, modalities, adapter)
    if slots != tuple(modalities):
        raise PlaceholderMismatchError(_explain(slots, modalities, plans))
    by_id = {placeholder_of(adapter, m).token_id for m in modalities}
    draft, item = _Draft(), 0
    for token in token_ids:
        if token in by_id:
            draft.add_item(item, plans[item], placeholder_of(adapter, modalities[item]))
            item += 1
        else:
            draft.ids.append(token)
    return draft.finish()


def check_ranges(layout: TokenLayout, plans: Sequence[ItemPlan]) -> None:
    """Ranges that came with a prepared request are as a `TokenLayout` promises. Raises `InputError`."""
    rows, end = [0] * len(plans), 0
    for found in layout.ranges:
        fits = end <= found.offset < (end := found.offset + found.length) <= len(layout.token_ids)
        if not fits or not 0 <= found.item < len(plans) or found.row != rows[found.item]:
            raise InputError(f"{found} does not fit the request's tokens and items; prepare it again")
        rows[found.item] += found.length
    if layout.ranges and rows != [plan.rows for plan in plans]:
        raise InputError(f"the request's ranges place {rows} rows of its items, not all; prepare it again")


def collapse(request: PreparedRequest, adapter: Adapter) -> tuple[int, ...]:
    """A request's token ids with one placeholder id an item again."""
    ids, end = [], 0
    for item, prepared in enumerate(request.items):
        placeholder = placeholder_of(adapter, prepared.modality)
        draft = _Draft()
        draft.add_item(item, prepared.plan, placeholder)
        first = next(r.offset for r in request.ranges if r.item == item)
        start = first - draft.ranges[0].offset
        ids += [*request.token_ids[end:start], placeholder.token_id]
        end = start + len(draft.ids)
    return (*ids, *request.token_ids[end:])


def slot_modalities(
    token_ids: Sequence[int], modalities: Sequence[Modality], adapter: Adapter
) -> tuple[Modality, ...]:
    """The modality of each placeholder id among ``token_ids``, in order."""
    by_id = {p.token_id: p.modality for p in adapter.placeholders if p.modality in modalities}
    return tuple(by_id[token] for token in token_ids if token in by_id)


def placeholder_of(adapter: Adapter, modality: Modality) -> Placeholder:
    placeholder = adapter.placeholder(modality)
    if placeholder is None:
        raise PluginError(f"adapter {adapter.name!r} has no placeholder for {modality!r}")
    return placeholder


class _Draft:
    """Token ids and ranges while they grow."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.ranges: list[PlaceholderRange] = []

    def add_item(self, item: int, plan: ItemPlan, placeholder: Placeholder) -> None:
        row = 0
        for piece in plan.pieces:
            if isinstance(piece, Rows):
                self.ranges.append(PlaceholderRange(len(self.ids), piece.count, item, row))
                self.ids += [placeholder.token_id] * piece.count
                row += piece.count
            else:
                self.ids += piece.ids

    def finish(self) -> TokenLayout:
        return TokenLayout(tuple(self.ids), tuple(self.ranges))


def _edge(segment: Segment | None, adapter: Adapter, tokenizer: Tokenizer) -> tuple[TextSegment, int] | None:
    """The placeholder of a neighbouring slot and its id, where the tokenizer has it as one token."""
    if not isinstance(segment, MediaSegment):
        return None
    text = placeholder_of(adapter, segment.modality).text
    token = tokenizer.token_id(text)
    return None if token is None else (TextSegment(text, trusted=True), token)


def _expanded(
    token_ids: Sequence[int], modalities: Sequence[Modality], plans: Sequence[ItemPlan], adapter: Adapter
) -> TokenLayout | None:
    """The layout, where ``token_ids`` hold each plan written out; None where they do not."""
    placeholder_ids = {placeholder_of(adapter, m).token_id for m in modalities}
    ranges: list[PlaceholderRange] = []
    position = 0
    for item, (modality, plan) in enumerate(zip(modalities, plans, strict=True)):
        draft = _Draft()
        draft.add_item(item, plan, placeholder_of(adapter, modality))
        if not draft.ranges:
            return None
        start = next(_placeholders(token_ids, position, placeholder_ids), len(token_ids))
        start -= draft.ranges[0].offset
        if start < position or list(token_ids[start : start + len(draft.ids)]) != draft.ids:
            return None
        ranges += [PlaceholderRange(start + r.offset, r.length, item, r.row) for r in draft.ranges]
        position = start + len(draft.ids)
    if next(_placeholders(token_ids, position, placeholder_ids), None) is not None:
        return None
    return TokenLayout(tuple(token_ids), tuple(ranges))


def _placeholders(token_ids: Sequence[int], start: int, placeholder_ids: set[int]) -> Iterator[int]:
    return (i for i in range(start, len(token_ids)) if token_ids[i] in placeholder_ids)


def _explain(slots: Sequence[Modality], modalities: Sequence[Modality], plans: Sequence[ItemPlan]) -> str:
    rows = ", ".join(str(plan.rows) for plan in plans)
    return (
        f"prompt_token_ids hold {len(slots)} placeholder ids for {len(modalities)} media: give one for each, "
        f"in their order, or as many as each has rows ({rows})"
    )
