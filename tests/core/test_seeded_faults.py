"""Faults put in on purpose: the simulated runner, or the invariants, must catch each one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from core.harness import Harness, Sizes
from core.sample_requests import (
    PAD,
    Picture,
    block_key,
    context_key,
    key_of,
    make_cross_request,
    make_request,
    stop_at,
    with_beams,
)
from core.simulated_runner import SimulatedRunner, right_cells

from mmcore.core.beam_search import Beam, BeamSearch
from mmcore.core.beam_steps import BeamSteps
from mmcore.core.block_pool import BlockPool
from mmcore.core.encoder_cache_manager import EncoderCacheManager
from mmcore.core.encoder_planner import EncoderPlanner
from mmcore.core.kv_cache_manager import KVCacheManager
from mmcore.core.output import Hypothesis, SchedulerOutput
from mmcore.core.sequence import Sequence as CoreSequence

CAT, DOG = Picture(1, 6), Picture(2, 6)


def same_text_two_pictures(key: Callable[..., bytes]) -> None:
    harness = Harness(key=key)
    for number, picture in enumerate((CAT, DOG)):
        harness.add(make_request(f"r{number}", [1, 2, picture, 3, 4]), stop_at(4))
        harness.run()


def test_media_key_left_out_of_the_block_key() -> None:
    def without_media(parent: bytes, ids: Sequence[int], media: Sequence[tuple[bytes, int]]) -> bytes:
        return block_key(parent, ids, ())

    same_text_two_pictures(block_key)
    with pytest.raises(AssertionError, match="another history"):
        same_text_two_pictures(without_media)


def test_place_left_out_of_the_block_key() -> None:
    """Four placeholder ids in a block, three of them a picture's rows: the first three, or the last."""

    def without_place(parent: bytes, ids: Sequence[int], media: Sequence[tuple[bytes, int]]) -> bytes:
        return block_key(parent, ids, [(key, 0) for key, _ in media])

    def two_cuts(key: Callable[..., bytes]) -> None:
        harness = Harness(Sizes(block_size=4), key=key)
        prompts: list[list[int | Picture]] = [[PAD, Picture(1, 3), 5], [Picture(1, 3), PAD, 5]]
        for number, pieces in enumerate(prompts):
            harness.add(make_request(f"r{number}", pieces), stop_at(2))
            harness.run()

    two_cuts(block_key)
    with pytest.raises(AssertionError, match="another history"):
        two_cuts(without_place)


def one_item_in_chunks() -> None:
    """The second request's item needs all the room, while the first is in the middle of its own."""
    harness = Harness(Sizes(encoder_bytes=60, max_num_tokens=4, max_chunk_tokens=2))
    harness.add(make_request("r0", [CAT, 1]), stop_at(2))
    harness.add(make_request("r1", [DOG, 1]), stop_at(2))
    harness.run()


def test_item_freed_a_step_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the step that computes its last row, instead of after it."""

    def at_once(self: EncoderPlanner, sequence: CoreSequence, stop: int) -> None:
        ends = sequence.request.layout.item_ends
        for item in [item for item in sequence.held if ends[item] <= stop]:
            self._cache.release(sequence.held.pop(item))

    one_item_in_chunks()
    monkeypatch.setattr(EncoderPlanner, "note_last_uses", at_once)
    with pytest.raises(AssertionError, match="gone before they were used"):
        one_item_in_chunks()


def two_texts_one_picture(context: Callable[..., bytes]) -> None:
    harness = Harness()
    for number in range(2):
        request = make_cross_request(f"r{number}", [1, 2, 3], [CAT], text_ids=[number], context=context)
        harness.add(request, stop_at(3))
        harness.run()


def test_cross_key_without_the_prefix_text() -> None:
    two_texts_one_picture(context_key)
    with pytest.raises(AssertionError, match="cross states of something else"):
        two_texts_one_picture(lambda keys, text: key_of("context", tuple(keys)))


def a_fork() -> None:
    harness = Harness()
    harness.add(make_request("r0", [1, 2, 3, 4, 5, 6], n=3), stop_at(5))
    harness.run()


def test_shared_tail_written_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    a_fork()
    monkeypatch.setattr(BlockPool, "is_writable", lambda self, block: True)
    with pytest.raises(AssertionError, match="another history"):
        a_fork()


def a_failed_row_and_its_twin() -> None:
    harness = Harness(Sizes(max_num_tokens=8))
    harness.add(make_request("r0", [1, 2, CAT, 3, 4, 5, 6]), stop_at(3))
    harness.step(frozenset({0}))
    harness.add(make_request("r1", [1, 2, CAT, 3, 4, 5, 6]), stop_at(3))
    harness.run()


def test_what_a_failed_row_wrote_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks registered when they are laid out, and entries when they are reserved."""
    a_failed_row_and_its_twin()
    right = KVCacheManager.start

    def at_once(self: KVCacheManager, sequence: CoreSequence, claim: object) -> None:
        right(self, sequence, claim)  # type: ignore[arg-type]
        self.register(sequence, len(sequence.token_ids))

    with monkeypatch.context() as patched:
        patched.setattr(KVCacheManager, "start", at_once)
        with pytest.raises(AssertionError):
            a_failed_row_and_its_twin()
    monkeypatch.setattr(EncoderCacheManager, "discard", EncoderCacheManager.confirm)
    with pytest.raises(AssertionError, match="computed from other rows"):
        a_failed_row_and_its_twin()


def test_a_failed_row_of_a_request_that_has_ended_leaves_nothing_either() -> None:
    harness = Harness()
    harness.add(make_request("r0", [1, 2, CAT, 3]), stop_at(3))
    harness.schedule(frozenset({0}))
    harness.abort("r0")
    harness.update()
    assert harness.encoder.find(key_of("encoder", CAT.number)) is None
    harness.run()


def a_preemption() -> None:
    harness = Harness(Sizes(num_blocks=6, reuse=False))
    for number in range(3):
        harness.add(make_request(f"r{number}", [1, 2, 3, number]), stop_at(12))
    harness.run()
    assert harness.scheduler.stats().preemptions


def test_preempted_blocks_given_out_while_still_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    a_preemption()
    monkeypatch.setattr(CoreSequence, "forget_progress", lambda self: None)
    with pytest.raises(AssertionError):
        a_preemption()


def two_searches() -> None:
    harness = Harness(Sizes(num_blocks=24, max_num_tokens=7))
    for number in range(2):
        harness.add(with_beams(make_request(f"r{number}", [1, 2, CAT, 3, number]), 3), stop_at(7))
    harness.run()


def test_beams_that_keep_the_blocks_of_their_own_past(monkeypatch: pytest.MonkeyPatch) -> None:
    """A beam takes the tokens of another one, and not what was computed for them."""
    two_searches()
    monkeypatch.setattr(BeamSteps, "_takes_blocks", lambda self, sequence, move, num_parents: False)
    with pytest.raises(AssertionError):
        two_searches()


def test_beams_that_trade_places_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two that trade gets what the first has become."""
    right = SimulatedRunner._meet

    def in_turn(self: SimulatedRunner, out: SchedulerOutput) -> None:
        right(self, replace(out, advance_slots=(), advance_sources=(), advance_ids=()))
        for number, source, token in zip(
            out.advance_slots, out.advance_sources, out.advance_ids, strict=True
        ):
            slot, tokens = self.slots[number], [*self.slots[source].tokens, token]
            slot.tokens, slot.cells = tokens, right_cells(slot.request, tokens)

    two_searches()
    monkeypatch.setattr(SimulatedRunner, "_meet", in_turn)
    with pytest.raises(AssertionError):
        two_searches()


def test_beams_that_finish_are_ranked_without_their_length(monkeypatch: pytest.MonkeyPatch) -> None:
    def search() -> None:
        harness = Harness()
        request = with_beams(make_request("r0", [1, 2, 3]), 3, length_penalty=2.0)
        harness.add(request, stop_at(9, 1, 5, 9, 13, 17))
        harness.run()

    search()
    right = BeamSearch._hypothesis

    def unscaled(self: BeamSearch, beam: Beam, stop: int | None = None) -> Hypothesis:
        return replace(right(self, beam, stop), score=beam.total)

    monkeypatch.setattr(BeamSearch, "_hypothesis", unscaled)
    with pytest.raises(AssertionError, match="another hypothesis"):
        search()
