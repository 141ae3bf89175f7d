"""Ranges: where in a prompt the rows of its items stand."""

from __future__ import annotations

from hypothesis import strategies as st

from mmcore.inputs.hashing import content_digest
from mmcore.request import ArraySource, PreparedRequest, Rows, Tokens
from mmcore.testing.law import law
from mmcore.testing.laws.rows import measured, some_media
from mmcore.testing.samples import Ask, Medium, asks
from mmcore.testing.subject import Subject


@law(needs=("any_header_is_measured_or_refused",), items=some_media)
def pieces_place_each_row_once(subject: Subject, items: list[Medium]) -> None:
    """The pieces of a plan hold its rows, none of them empty, and between them ordinary tokens."""
    plans = measured(subject, items)
    assert len(plans) == len(items), f"{len(plans)} plans for {len(items)} items"
    reserved = {placeholder.token_id for placeholder in subject.adapter.placeholders}
    for plan in plans:
        counts = [piece.count for piece in plan.pieces if isinstance(piece, Rows)]
        wanted = plan.rows if subject.is_interleaved else 0
        assert sum(counts) == wanted, f"pieces hold {sum(counts)} rows, the plan has {wanted}"
        assert all(count > 0 for count in counts), f"a piece of no rows: {plan.pieces}"
        between = {i for piece in plan.pieces if isinstance(piece, Tokens) for i in piece.ids}
        assert not between & reserved, "a placeholder's id stands among the tokens between rows"
        assert all(0 <= i < subject.adapter.decoder.vocab_size for i in between), "an id has no embedding"


def asks_with_media(subject: Subject) -> st.SearchStrategy[Ask]:
    return asks(subject, least_media=1)


@law(
    needs=("pieces_place_each_row_once",),
    applies=lambda subject: subject.is_interleaved,
    ask=asks_with_media,
)
def ranges_use_each_row_once(subject: Subject, ask: Ask) -> None:
    """Ranges are ordered and disjoint, and use an item's rows once and in order, at its placeholder's id."""
    request = subject.prepared(ask)
    rows, end = [0] * len(request.items), 0
    for span in request.ranges:
        assert span.length > 0, f"{span} is empty"
        assert span.offset >= end, f"{span} overlaps what is before it"
        end = span.offset + span.length
        assert span.row == rows[span.item], f"{span} does not go on where item {span.item} was left"
        rows[span.item] += span.length
        placeholder = subject.adapter.placeholder(request.items[span.item].modality)
        assert placeholder is not None
        assert set(request.token_ids[span.offset : end]) == {placeholder.token_id}, "another id stands there"
    assert rows == [item.plan.rows for item in request.items], f"{rows} rows are used"


@law(needs=("ranges_use_each_row_once",), ask=asks_with_media)
def media_keep_their_order(subject: Subject, ask: Ask) -> None:
    """The k-th item of a modality is the k-th medium of it in the messages."""
    request = subject.prepared(ask)
    assert len(request.items) == len(ask.media), f"{len(request.items)} items of {len(ask.media)} media"
    for modality in subject.adapter.inputs.modalities:
        given = [medium for medium in ask.media if medium.info.modality == modality]
        assert _digests(request, modality) == [_digest(medium) for medium in given], (
            f"the {modality}s of the prompt change places"
        )


def _digests(request: PreparedRequest, modality: str) -> list[bytes]:
    return [item.content_digest for item in request.items if item.modality == modality]


def _digest(medium: Medium) -> bytes:
    """As for what a caller hands in."""
    from mmcore.config import MediaPolicy
    from mmcore.inputs.fetch import MediaFetcher
    from mmcore.inputs.media import open_media

    opened = open_media(medium.info.modality, medium.given(), MediaFetcher(MediaPolicy(), None))
    assert isinstance(opened.source, ArraySource)
    return content_digest(opened.source)
