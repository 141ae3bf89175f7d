"""Ranges, groups and what a block's media key says."""

from __future__ import annotations

from core.sample_requests import Picture, make_cross_request, make_interleaved_request, make_request
from core.simulated_runner import media_at
from core.strategies import prompts
from hypothesis import given
from hypothesis import strategies as st

from mmcore.core.media_layout import layout_of
from mmcore.request import PreparedRequest


def test_items_apart_are_groups_of_their_own() -> None:
    layout = layout_of(make_request("r", [Picture(1, 3), Picture(2, 2), 5, Picture(3, 1)]))
    assert layout.groups == {0: (0,), 1: (1,), 2: (2,)}
    assert layout.item_ends == {0: 3, 1: 5, 2: 7}


def test_items_by_turns_are_one_group() -> None:
    layout = layout_of(make_interleaved_request("r", Picture(1, 4), Picture(2, 4)))
    assert layout.groups == {0: (0, 1), 1: (0, 1)}


def test_all_items_of_cross_states_are_one_group() -> None:
    layout = layout_of(make_cross_request("r", [1], [Picture(1, 4), Picture(2, 4)]))
    assert layout.groups == {0: (0, 1), 1: (0, 1)}
    assert layout.item_ends == {}


def test_a_cut_moves_before_an_atomic_item() -> None:
    layout = layout_of(make_request("r", [7, Picture(1, 3, atomic=True), Picture(2, 3)]))
    assert [layout.uncut(position) for position in range(8)] == [0, 1, 1, 1, 4, 5, 6, 7]


def placed(request: PreparedRequest, start: int, stop: int) -> list[tuple[bytes, int] | int]:
    """What each position of a block really is."""
    found: list[tuple[bytes, int] | int] = []
    for position in range(start, stop):
        media = media_at(request, position)
        key = media and (request.items[media[0]].encoder_key, media[1])
        found.append(key or request.token_ids[position])
    return found


@given(prompts("a"), prompts("b"), st.integers(1, 6), st.data())
def test_equal_tokens_and_media_are_equal_content(
    one: PreparedRequest, other: PreparedRequest, size: int, data: st.DataObject
) -> None:
    """Blocks of one key's ingredients hold the same rows in the same places, and the other way round."""
    blocks = []
    for request in (one, other):
        start = data.draw(st.integers(0, max(request.num_tokens - size, 0)))
        stop = min(start + size, request.num_tokens)
        ingredients = request.token_ids[start:stop], layout_of(request).media_in(start, stop)
        blocks.append((ingredients, placed(request, start, stop)))
    (first, first_content), (second, second_content) = blocks
    assert (first == second) == (first_content == second_content)
