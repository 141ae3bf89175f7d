"""What is not computed again, and what happens when it was evicted meanwhile."""

from __future__ import annotations

from core.harness import Harness, Sizes, rows
from core.sample_requests import (
    Picture,
    make_cross_request,
    make_interleaved_request,
    make_request,
    stop_at,
)

CAT, DOG = Picture(1, 6), Picture(2, 6)


def test_the_same_prompt_again_computes_its_last_block_only() -> None:
    harness = Harness()
    harness.add(make_request("a", [1, 2, CAT, 3, 4, 5, 6]), stop_at(2))
    harness.run()
    assert harness.add(make_request("b", [1, 2, CAT, 3, 4, 5, 6]), stop_at(2)) == ()
    out = harness.step()
    assert rows(out) == [(0, 8, 4, True)]
    assert out.encode_slots == []
    harness.run()
    assert harness.done["b"].ended[0].cached_tokens == 8
    assert harness.done["b"].ended[0].encoded_items == 0


def test_a_hit_inside_an_item_needs_its_rows_again() -> None:
    harness = Harness()
    harness.add(make_request("a", [1, 2, CAT, 3]), stop_at(2))
    harness.run()
    harness.add(make_request("b", [1, 2, CAT]), stop_at(2))
    out = harness.step()
    assert rows(out) == [(0, 4, 4, True)]
    assert (out.encode_slots, out.bind_items) == ([], [0])
    assert harness.scheduler.stats().encoder_hits == 1


def test_an_item_is_encoded_once_for_two_who_want_it_at_the_same_time() -> None:
    harness = Harness()
    harness.add(make_request("a", [1, CAT, 2]), stop_at(3))
    harness.add(make_request("b", [3, CAT, 4]), stop_at(3))
    assert rows(harness.step()) == [(0, 0, 8, True), (1, 0, 1, False)]
    out = harness.step()
    assert (out.encode_slots, out.bind_slots) == ([], [1])


def test_an_evicted_item_is_asked_for_again_and_the_request_waits() -> None:
    harness = Harness(Sizes(encoder_bytes=60))
    harness.add(make_request("a", [1, CAT, 2]), stop_at(1))
    harness.run()
    assert harness.add(make_request("b", [3, CAT, 4]), stop_at(2)) == ()
    harness.add(make_request("urgent", [DOG, 5], priority=-1), stop_at(1))
    assert harness.step().wanted == [("b", 0)]
    harness.step()
    assert not harness.scheduler.has_ready_work
    harness.ready("b", 0)
    harness.run()
    assert harness.done["b"].ended[0].encoded_items == 1


def test_cross_states_are_written_once_and_shared() -> None:
    harness = Harness()
    harness.add(make_cross_request("a", [1, 2], [CAT, DOG]), stop_at(3))
    harness.add(make_cross_request("b", [1, 3], [CAT, DOG], n=2), stop_at(3))
    first = harness.step()
    assert (first.encode_items, first.cross_writes, first.row_slots) == ([0, 1], [True], [0])
    second = harness.step()
    assert (second.encode_items, second.cross_writes) == ([], [False])
    assert second.cross_blocks[0] == first.cross_blocks[0]
    third = harness.step()
    assert third.cross_blocks == [first.cross_blocks[0]]
    harness.run()
    assert harness.scheduler.stats().cross_hits == 1
    assert harness.scheduler.stats().cross_blocks == len(first.cross_blocks[0])


def test_cross_states_of_another_text_take_new_blocks_and_the_same_rows() -> None:
    harness = Harness()
    for name, text in (("a", [1]), ("b", [1]), ("c", [2])):
        harness.add(make_cross_request(name, [1, 2], [CAT], text_ids=text), stop_at(1))
        harness.run()
    stats = harness.scheduler.stats()
    assert (stats.encoder_misses, stats.encoder_hits, stats.cross_hits) == (1, 1, 1)
    assert stats.cross_blocks == 2 * 2  # 8 states in blocks of 4, twice


def test_encoder_room_of_cross_states_is_free_after_their_step() -> None:
    harness = Harness(Sizes(encoder_bytes=120))
    harness.add(make_cross_request("a", [1, 2], [CAT, DOG]), stop_at(5))
    harness.step()
    harness.add(make_cross_request("b", [1, 3], [Picture(3, 6), Picture(4, 6)]), stop_at(3))
    assert harness.step().encode_items == [0, 1]


def test_items_by_turns_are_encoded_together_and_held_once() -> None:
    harness = Harness(Sizes(max_num_tokens=3))
    harness.add(make_interleaved_request("r", CAT, DOG), stop_at(2))
    assert harness.step().encode_items == [0, 1]
    harness.run()
    assert harness.scheduler.stats().encoder_hits == 0


def test_room_for_a_new_item_is_not_made_of_a_hit_beside_it() -> None:
    harness = Harness(Sizes(encoder_bytes=120))
    for name, picture in (("a", CAT), ("b", Picture(3, 6))):
        harness.add(make_request(name, [1, picture, 2]), stop_at(1))
        harness.run()
    assert harness.add(make_cross_request("c", [1], [DOG, CAT]), stop_at(1)) == (0,)
    out = harness.step()
    assert (out.encode_items, out.bind_items) == ([0], [1, 0])


def test_cross_states_of_text_alone_are_written_once_too() -> None:
    harness = Harness()
    for name in ("a", "b"):
        harness.add(make_cross_request(name, [1, 2], [], text_ids=[5, 6]), stop_at(3))
    assert harness.step().cross_writes == [True]
    assert harness.step().cross_writes == [False]
