"""Whose turn it is, whatever was queued in which order and ended meanwhile."""

from __future__ import annotations

from core.sample_requests import make_request, stop_at
from hypothesis import given
from hypothesis import strategies as st

from mmcore.core.media_layout import layout_of
from mmcore.core.sequence import RequestState, Sequence, first_sequence
from mmcore.core.waiting_queue import WaitingQueue


def sequence(turn: int, number: int, slot: int = -1) -> Sequence:
    prepared = make_request(f"r{number}", [1, 2])
    layout = layout_of(prepared)
    found = first_sequence(RequestState(prepared, stop_at(3), (turn, number), layout, [], []))
    found.slot = slot
    return found


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.booleans()), max_size=30))
def test_pops_in_order_without_those_that_ended(entries: list[tuple[int, bool, bool]]) -> None:
    queue = WaitingQueue()
    members = [
        sequence(turn, number, slot=number if has_slot else -1)
        for number, (turn, has_slot, _) in enumerate(entries)
    ]
    for member in members:
        queue.push(member)
    for member, (_, _, ends) in zip(members, entries, strict=True):
        if ends:
            member.has_ended = True
            queue.skip_ended()
    left = sorted(member for member in members if not member.has_ended)
    assert len(queue) == len(left)
    with_slot = [member for member in left if member.slot >= 0]
    assert queue.head(free_slots=False) is (with_slot[0] if with_slot else None)
    assert [queue.pop(free_slots=True) for _ in left] == left
    assert queue.pop(free_slots=True) is None
    assert len(queue) == 0


def test_entries_of_ended_sequences_do_not_pile_up() -> None:
    queue = WaitingQueue()
    stays = sequence(0, 0)
    queue.push(stays)
    for number in range(1, 1000):
        gone = sequence(1, number)
        queue.push(gone)
        gone.has_ended = True
        queue.skip_ended()
    assert len(queue) == 1
    assert len(queue._fresh) < 5
