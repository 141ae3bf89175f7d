"""Independence of the schedule, by paper family: a request's tokens are a function of the request alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from paper.asks import Ask, asks
from paper.families import FAMILIES
from paper.toy_house import Answer, Room, ToyHouse

from mmcore.inputs import assemble
from mmcore.inputs.hashing import block_key, context_key
from mmcore.request import PreparedRequest

NOBODY: frozenset[int] = frozenset()
LONG_ANSWERS = [name for name in FAMILIES if name != "nougat"]  # whose rule ends an answer after few tokens


@lru_cache(maxsize=4096)
def alone(family: str, ask: Ask) -> Answer:
    """In one piece, in an empty house, nothing reused."""
    house = ToyHouse(FAMILIES[family], Room(reuse=False))
    house.ask("only", ask)
    return house.run()["only"]


def together(
    family: str,
    room: Room,
    questions: Sequence[Ask],
    waits: Sequence[int] = (),
    aborted: frozenset[int] = NOBODY,
    broken: frozenset[int] = NOBODY,
) -> ToyHouse:
    """All in one house, some steps after one another; raises where an answer is not what it is alone.

    Some are aborted when all are in, and the media of some turn out to be broken.
    """
    house = ToyHouse(FAMILIES[family], room)
    house.broken |= {str(number) for number in broken}
    for number, ask in enumerate(questions):
        house.ask(str(number), ask)
        for _ in range(waits[number] if waits else 0):
            house.step()
    for number in aborted:
        house.abort(str(number))
    answers = house.run()
    for number, ask in enumerate(questions):
        lost = number in aborted | broken
        assert lost or answers[str(number)] == alone(family, ask), f"question {number}"
    return house


def blocks_of(request: PreparedRequest, block_size: int) -> int:
    """With room for a prefix that a later link adds."""
    cross = request.cross.length if request.cross else 0
    own = request.num_tokens + 2 + (request.sampling.max_tokens or 0)
    return -(-own // block_size) + -(-cross // block_size)


def just_enough(room: Room, family: str, questions: Sequence[Ask]) -> Room:
    """``room`` as what it has beyond the blocks, bytes and uncut tokens of the largest question."""
    house = ToyHouse(FAMILIES[family], Room())
    for number, ask in enumerate(questions):
        house.ask(str(number), ask)
    uncut = [r.length for q in house.requests for r in q.ranges if q.items[r.item].plan.atomic]
    return replace(
        room,
        tokens=max([room.tokens, *uncut]),
        blocks=room.blocks + max(blocks_of(request, room.block_size) for request in house.requests),
        encoder_bytes=room.encoder_bytes
        + max(sum(item.cost.output_bytes for item in request.items) for request in house.requests),
    )


def rooms() -> st.SearchStrategy[Room]:
    return st.builds(
        Room,
        tokens=st.integers(1, 24) | st.just(512),
        batch=st.sampled_from([1, 16]),
        blocks=st.integers(0, 9) | st.just(500),
        block_size=st.sampled_from([1, 3, 4, 16]),
        encoder_bytes=st.sampled_from([0, 1000, 1 << 20]),
        reuse=st.sampled_from([True, True, False]),
        overlap=st.booleans(),
        lateness=st.integers(0, 3),
        block_key=st.just(block_key),
    )


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=settings().max_examples // 2)
@given(st.data())
def test_tokens_are_a_function_of_the_request_alone(family: str, data: st.DataObject) -> None:
    """Any chunk size, any cut inside an item, hit or miss, preemption, batch, lateness, faulty neighbour."""
    questions = data.draw(st.lists(asks(), min_size=2, max_size=6), label="questions")
    room = just_enough(data.draw(rooms(), label="room"), family, questions)
    waits = data.draw(st.tuples(*[st.sampled_from([0, 0, 1, 4])] * len(questions)), label="waits")
    one_at_most = st.frozensets(st.integers(0, len(questions) - 1), max_size=1)
    aborted, broken = data.draw(one_at_most, label="aborted"), data.draw(one_at_most, label="broken")
    stats = together(family, room, questions, waits, aborted, broken).scheduler.stats()
    event(f"preempted: {stats.preemptions > 0}")
    event(f"hit: {stats.prefix_hit_tokens + stats.cross_hits > 0}")


@pytest.mark.parametrize("family", LONG_ANSWERS)
@pytest.mark.parametrize("overlap", [False, True])
def test_preempted_requests_answer_as_if_alone(family: str, overlap: bool) -> None:
    questions = [Ask((0, "what is it"), 20), Ask((1, "what is in it?"), 20), Ask(("what", 0), 20, n=2)]
    room = just_enough(Room(tokens=7, blocks=3, block_size=1, overlap=overlap), family, questions * 2)
    assert together(family, room, questions * 2).scheduler.stats().preemptions > 0


@pytest.mark.parametrize("family", FAMILIES)
def test_the_second_request_finds_what_the_first_computed(family: str) -> None:
    ask = Ask((2, "what is it"), 9)
    stats = together(family, Room(tokens=24, lateness=2), [ask, ask], waits=[40, 0]).scheduler.stats()
    assert stats.prefix_hit_tokens + stats.cross_hits > 0


# ------------------------------------------------------------------ the law notices faults


def test_a_block_key_without_media_gives_another_pictures_answer() -> None:
    blind = Room(block_key=lambda parent, token_ids, media: block_key(parent, token_ids))
    questions = [Ask((0, "what is it")), Ask((1, "what is it"))]
    together("llava", Room(), questions, waits=[20, 0])
    with pytest.raises(AssertionError, match="question 1"):
        together("llava", blind, questions, waits=[20, 0])


def test_a_cross_key_without_its_text_gives_another_questions_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    questions = [Ask((0, "what is it")), Ask((0, "what"))]
    together("blip2-t5", Room(), questions, waits=[20, 0])
    monkeypatch.setattr(assemble, "context_key", lambda root, items, text, stage: context_key(root, items))
    with pytest.raises(AssertionError, match="question 1"):
        together("blip2-t5", Room(), questions, waits=[20, 0])
