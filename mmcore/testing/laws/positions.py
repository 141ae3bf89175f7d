"""Positions: placed once for a whole prompt, and sliced wherever it is cut."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from mmcore.adapter import Layout
from mmcore.request import PreparedRequest, TokenPositions
from mmcore.testing.law import law
from mmcore.testing.laws.ranges import asks_with_media
from mmcore.testing.samples import Ask
from mmcore.testing.subject import Subject

_NEEDS = ("ranges_use_each_row_once",)


def _has_positions(subject: Subject) -> bool:
    return subject.adapter.positions is not None


def layout_of(request: PreparedRequest, num_tokens: int | None = None) -> Layout:
    """Of a prompt, or of its first tokens: only items that stand there whole."""
    count = request.num_tokens if num_tokens is None else num_tokens
    return Layout(
        count,
        tuple(span for span in request.ranges if span.offset + span.length <= count),
        tuple(item.plan for item in request.items),
        tuple(item.modality for item in request.items),
    )


def placed(subject: Subject, layout: Layout) -> TokenPositions:
    assert subject.adapter.positions is not None
    return subject.adapter.positions(layout)


@law(needs=_NEEDS, applies=_has_positions, ask=asks_with_media)
def positions_fit_the_decoder(subject: Subject, ask: Ask) -> None:
    """A prompt has one whole number a token and axis of the decoder; asking again changes nothing."""
    request = subject.prepared(ask)
    layout = layout_of(request)
    found = placed(subject, layout)
    kept = np.array(found.values)
    axes = getattr(subject.adapter.decoder.positions, "axes", 1)
    assert kept.shape == (axes, request.num_tokens), f"{kept.shape} for {request.num_tokens} tokens"
    assert np.issubdtype(kept.dtype, np.integer), f"positions are {kept.dtype}"
    assert kept.min() >= 0, f"a token stands at {kept.min()}"
    placed(subject, Layout(request.num_tokens, (), (), ()))
    assert np.array_equal(np.array(found.values), kept), "positions change when another prompt is placed"
    again = np.array(placed(subject, layout).values)
    assert np.array_equal(again, kept), "the same prompt is placed otherwise a second time"


@law(
    needs=("positions_fit_the_decoder",),
    applies=_has_positions,
    ask=asks_with_media,
    more=lambda s: st.integers(1, 9),
)
def positions_sliced_are_positions_whole(subject: Subject, ask: Ask, more: int) -> None:
    """What follows moves nothing: a beginning stands where it stands alone, an answer at i + delta."""
    request = subject.prepared(ask)
    whole, delta = _whole(subject, request, request.num_tokens)
    cuts = [0, *(span.offset for span in request.ranges), request.num_tokens]
    for cut in (cut for cut in cuts if cut > 0):
        part, _ = _whole(subject, request, cut)
        assert np.array_equal(part, whole[:, :cut]), f"{cut} tokens stand elsewhere alone"
    longer, _ = _whole(subject, request, request.num_tokens + more)
    answer = np.arange(request.num_tokens, request.num_tokens + more) + delta
    found = longer[:, request.num_tokens :]
    assert (found == answer).all(), f"an answer stands at {found[0].tolist()}, delta says {answer.tolist()}"


def _whole(subject: Subject, request: PreparedRequest, num_tokens: int) -> tuple[np.ndarray, int]:
    """A plain array, whatever the adapter's is, and the delta."""
    found = placed(subject, layout_of(request, num_tokens))
    return np.array(found.values), found.delta
