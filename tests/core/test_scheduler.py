"""What a step contains, told by small stories; the state machine covers their combinations."""

from __future__ import annotations

from core.harness import Harness, Sizes, rows
from core.sample_requests import (
    Picture,
    make_cross_request,
    make_request,
    stop_at,
)

CAT, DOG = Picture(1, 6), Picture(2, 6)

# ------------------------------------------------------------------ chunks and budgets


def test_a_long_prompt_is_cut_and_decode_rows_go_on() -> None:
    harness = Harness(Sizes(max_num_tokens=5))
    harness.add(make_request("short", [1, 2]), stop_at(9))
    assert rows(harness.step()) == [(0, 0, 2, True)]
    harness.add(make_request("long", range(10, 20)), stop_at(2))
    assert rows(harness.step()) == [(0, 2, 1, True), (1, 0, 4, False)]
    assert rows(harness.step()) == [(0, 3, 1, True), (1, 4, 4, False)]
    assert rows(harness.step()) == [(0, 4, 1, True), (1, 8, 2, True)]
    harness.run()


def test_a_long_prompt_leaves_tokens_to_those_behind_it() -> None:
    harness = Harness(Sizes(max_num_tokens=6, max_chunk_tokens=4))
    harness.add(make_request("old", range(10, 40)), stop_at(2))
    harness.add(make_request("new", [1]), stop_at(9))
    assert rows(harness.step()) == [(0, 0, 4, False), (1, 0, 1, True)]
    assert rows(harness.step()) == [(0, 4, 4, False), (1, 1, 1, True)]


def test_an_atomic_item_is_computed_in_one_step() -> None:
    harness = Harness(Sizes(max_num_tokens=8))
    harness.add(make_request("r", [1, 2, 3, Picture(1, 7, atomic=True), 4]), stop_at(2))
    assert [rows(harness.step())[0][1:3] for _ in range(3)] == [(0, 3), (3, 8), (11, 1)]


def test_encoder_work_is_spread_over_steps() -> None:
    harness = Harness(Sizes(encoder_work=10))
    harness.add(make_request("r", [1, CAT, 2, DOG, 3]), stop_at(2))
    first, second = harness.step(), harness.step()
    assert (first.encode_items, first.row_counts) == ([0], [8])
    assert (second.encode_items, second.row_counts) == ([1], [7])


def test_an_item_larger_than_a_steps_work_runs_alone() -> None:
    harness = Harness(Sizes(encoder_work=10))
    harness.add(make_request("small", [CAT, 2]), stop_at(2))
    harness.add(make_request("large", [Picture(3, 4, work=99), 2]), stop_at(2))
    assert harness.step().encode_slots == [0]
    assert harness.step().encode_slots == [1]


def test_making_cross_states_takes_of_the_encoder_work() -> None:
    harness = Harness(Sizes(encoder_work=15))
    for name, text in (("a", 1), ("b", 2), ("c", 3), ("d", 4)):
        work = 99 if name == "d" else 6
        harness.add(make_cross_request(name, [1], [CAT], text_ids=[text], work=work), stop_at(3))
    steps = [harness.step() for _ in range(3)]
    assert [step.cross_writes for step in steps] == [[True], [True, True], [True]]
    assert [step.encode_items for step in steps] == [[0], [], []]
    harness.run()


def test_cross_states_without_items_take_of_the_encoder_work() -> None:
    harness = Harness(Sizes(encoder_work=15))
    for name, text in (("a", 1), ("b", 2), ("c", 1)):
        harness.add(make_cross_request(name, [1], [], text_ids=[text], work=10), stop_at(1))
    assert [harness.step().cross_writes for _ in range(2)] == [[True], [True, False]]
    harness.run()


def test_no_newer_item_overtakes_one_that_waits_for_room() -> None:
    harness = Harness(Sizes(encoder_bytes=90, max_num_tokens=10, max_chunk_tokens=3))
    harness.add(make_request("first", [CAT, 2]), stop_at(2))
    harness.add(make_request("second", [DOG, 2]), stop_at(2))
    harness.add(make_request("third", [Picture(3, 2), 2]), stop_at(2))
    assert harness.step().encode_slots == [0]
    assert harness.scheduler.stats().waiting == 1, "the third need not start yet"
    assert harness.step().encode_slots == [], "there is room for the third, and it is not its turn"
    assert harness.step().encode_slots == [1, 2]


def test_nor_does_one_that_runs_already() -> None:
    harness = Harness(Sizes(encoder_bytes=90, max_num_tokens=10, max_chunk_tokens=3))
    harness.add(make_request("first", [CAT, 2]), stop_at(2))
    harness.add(make_request("second", [1, 1, 1, 1, DOG, 2]), stop_at(2))
    harness.add(make_request("third", [3, 3, 3, 3, Picture(3, 2), 2]), stop_at(2))
    assert [harness.step().encode_slots for _ in range(3)] == [[0], [], [1, 2]]


# ------------------------------------------------------------------ order and preemption


def test_a_better_priority_goes_first() -> None:
    harness = Harness(Sizes(max_batch_size=1))
    for name, priority in (("later", 1), ("soon", 0), ("first", -1)):
        harness.add(make_request(name, [1, 2], priority=priority), stop_at(1))
    harness.run()
    assert list(harness.done) == ["first", "soon", "later"]


def test_a_low_priority_ages_into_its_turn() -> None:
    harness = Harness(Sizes(max_batch_size=1, ageing_steps=10))
    harness.add(make_request("low", [1, 2], priority=2), stop_at(1))
    for number in range(40):
        harness.add(make_request(f"high{number}", [1, 2]), stop_at(1))
        harness.step()
    assert 20 <= list(harness.done).index("low") < 30


def test_the_newest_of_the_lowest_priority_is_preempted_and_keeps_its_slot() -> None:
    harness = Harness(Sizes(num_blocks=6, reuse=False))
    harness.add(make_request("low", [1, 2, 3, 4], priority=1), stop_at(9))
    harness.add(make_request("old", [1, 2, 3, 5]), stop_at(9))
    harness.add(make_request("new", [1, 2, 3, 6]), stop_at(9))
    slots = {new.request.request_id: new.slot for new in harness.step().new_requests}
    reset: list[int] = []
    while harness.live:
        out = harness.step()
        reset += out.reset_slots
        assert not out.new_requests
    assert reset[0] == slots["low"]
    assert slots["old"] not in reset
    assert next(iter(harness.done)) == "old"


def test_an_urgent_request_takes_blocks_from_a_running_one() -> None:
    harness = Harness(Sizes(num_blocks=4, reuse=False))
    harness.add(make_request("slow", range(1, 9), priority=1), stop_at(7))
    harness.step()
    harness.add(make_request("urgent", range(1, 13)), stop_at(2))
    out = harness.step()
    assert out.reset_slots == [0]
    assert rows(out) == [(1, 0, 12, True)]
    harness.run()


# ------------------------------------------------------------------ several sequences


def test_n_sequences_share_the_prompt_and_copy_its_tail() -> None:
    harness = Harness()
    harness.add(make_request("r", [1, 2, 3, 4, 5, 6], n=3), stop_at(3))
    first, second = harness.step(), harness.step()
    assert len(first.block_ids) == 2
    assert [new.sequence for new in second.new_requests] == [1, 2]
    assert rows(second) == [(0, 6, 1, True), (1, 5, 1, True), (2, 5, 1, True)]
    assert [copy.source for copy in second.copies] == [first.block_ids[1]] * 2
    assert (second.swap_slots, second.swap_indices) == ([0], [1])
    harness.run()


def test_sequences_without_a_slot_start_on_their_own() -> None:
    harness = Harness(Sizes(max_batch_size=1))
    harness.add(make_request("r", [1, 2, 3, 4, 5, 6], n=3), stop_at(3))
    harness.run()
    assert len(harness.done["r"].ended) == 3


def test_finishing_the_first_before_its_prompt_lets_the_others_begin() -> None:
    harness = Harness(Sizes(max_num_tokens=2))
    harness.add(make_request("r", [1, 2, 3, 4, 5, 6], n=2), stop_at(3))
    harness.step()
    harness.finish("r", 0)
    harness.run()
    assert len(harness.done["r"].tokens[1]) == 3
