"""Requests and sizes as Hypothesis draws them: few texts and few pictures, so that much is shared."""

from __future__ import annotations

from core.harness import Sizes
from core.sample_requests import (
    Picture,
    make_cross_request,
    make_interleaved_request,
    make_request,
    stop_at,
    with_beams,
)
from core.simulated_runner import VOCABULARY
from hypothesis import strategies as st

from mmcore.core.sequence import StopConditions
from mmcore.request import PreparedRequest

PICTURES = (Picture(1, 1), Picture(2, 3), Picture(3, 6), Picture(4, 6, atomic=True), Picture(5, 9, work=40))
OPENINGS = ((1,), (1, 2, 3), (1, 2, 3, 4, 5, 6, 7), tuple(range(1, 14)))

pictures = st.sampled_from(PICTURES)
priorities = st.integers(0, 2)
numbers = st.sampled_from((1, 1, 1, 2, 3))


def sizes() -> st.SearchStrategy[Sizes]:
    """From too small for most requests to roomy."""
    return st.builds(
        Sizes,
        num_blocks=st.sampled_from((8, 12, 20, 48)),
        block_size=st.sampled_from((1, 2, 4, 5)),
        encoder_bytes=st.sampled_from((60, 90, 130, 1000)),
        max_num_tokens=st.sampled_from((1, 3, 6, 11, 64)),
        max_batch_size=st.sampled_from((1, 2, 4)),
        encoder_work=st.sampled_from((1, 7, 50)),
        max_chunk_tokens=st.sampled_from((None, 2, 5)),
        ageing_steps=st.sampled_from((1, 20)),
        reuse=st.sampled_from((True, True, False)),
    )


@st.composite
def texts(draw: st.DrawFn) -> list[int]:
    return [*draw(st.sampled_from(OPENINGS)), *draw(st.lists(st.sampled_from((7, 8)), max_size=3))]


@st.composite
def prompts(draw: st.DrawFn, name: str) -> PreparedRequest:
    pieces: list[int | Picture] = []
    for item in draw(st.lists(pictures, max_size=3)):
        pieces += draw(st.sampled_from(((), *OPENINGS)))
        pieces.append(item)
    pieces += draw(st.one_of(texts(), st.just([]))) if pieces else draw(texts())
    return make_request(name, pieces, n=draw(numbers), priority=draw(priorities))


@st.composite
def cross_prompts(draw: st.DrawFn, name: str) -> PreparedRequest:
    return make_cross_request(
        name,
        draw(texts()),
        draw(st.lists(pictures, min_size=0, max_size=2)),
        text_ids=draw(st.sampled_from(((), (1,), (2,)))),
        n=draw(numbers),
        priority=draw(priorities),
    )


@st.composite
def beam_prompts(draw: st.DrawFn, name: str) -> PreparedRequest:
    return with_beams(
        draw(st.one_of(prompts(name), cross_prompts(name))),
        draw(st.integers(1, 4)),
        length_penalty=draw(st.sampled_from((-1.0, 0.0, 1.0, 2.0))),
        early_stopping=draw(st.sampled_from((False, True, "never"))),
    )


def requests(name: str) -> st.SearchStrategy[PreparedRequest]:
    interleaved = st.builds(make_interleaved_request, st.just(name), *[st.sampled_from(PICTURES[1:])] * 2)
    return st.one_of(prompts(name), prompts(name), cross_prompts(name), interleaved, beam_prompts(name))


def stops() -> st.SearchStrategy[StopConditions]:
    ids = st.sampled_from(((), (3,), tuple(range(0, VOCABULARY, 3))))
    return st.builds(
        lambda most, ids, least: stop_at(most, *ids, min_tokens=min(least, most)),
        st.integers(1, 9),
        ids,
        st.integers(0, 3),
    )
