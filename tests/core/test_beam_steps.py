"""Beam groups in the scheduler: the naive search's answers, whatever is preempted, shared or refused."""

from __future__ import annotations

from typing import Any

import pytest
from core.harness import Harness, Sizes
from core.sample_requests import Picture, make_cross_request, make_request, stop_at, with_beams
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcore.errors import RequestTooLargeError

PROMPT: list[int | Picture] = [1, 2, Picture(1, 3), 3, 4]


def hypotheses(harness: Harness, name: str) -> list[Any]:
    return [harness.done[name].ended[i].hypothesis for i in sorted(harness.done[name].ended)]


@settings(max_examples=60)
@given(
    width=st.integers(1, 4),
    penalty=st.sampled_from((-1.0, 0.0, 1.0, 2.0)),
    early=st.sampled_from((False, True, "never")),
    most=st.integers(1, 9),
    stops=st.sampled_from(((), (3,), (1, 5, 9, 13))),
    num_blocks=st.sampled_from((24, 64)),
    overlap=st.booleans(),
    cross=st.booleans(),
)
def test_groups_find_what_a_naive_search_finds(
    width: int,
    penalty: float,
    early: Any,
    most: int,
    stops: tuple[int, ...],
    num_blocks: int,
    overlap: bool,
    cross: bool,
) -> None:
    """The harness compares each hypothesis. Two groups and a plain request share a small cache."""
    harness = Harness(Sizes(num_blocks=num_blocks, max_num_tokens=7), overlap=overlap)
    for number in range(2):
        name = f"r{number}"
        plain = make_cross_request(name, [1, 2], [Picture(1, 2)]) if cross else make_request(name, PROMPT)
        request = with_beams(plain, width, length_penalty=penalty, early_stopping=early)
        harness.add(request, stop_at(most, *stops))
        harness.add(make_request(f"p{number}", [1, 2, 3]), stop_at(6))
    harness.run()
    for number in range(2):
        found = hypotheses(harness, f"r{number}")
        assert all(found)
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
        assert len({one.token_ids for one in found}) == width
        for one in found:
            assert one.score == pytest.approx(sum(one.logprobs) / len(one.token_ids) ** penalty)


def test_beams_share_blocks_and_copy_on_write() -> None:
    """Four beams of 24 tokens in fewer blocks than four sequences would take, and a tail is copied."""
    harness = Harness(Sizes(num_blocks=64, block_size=4, reuse=False))
    harness.add(with_beams(make_request("r0", list(range(1, 17))), 4), stop_at(8))
    least, copies = 64, 0
    while harness.scheduler.has_unfinished:
        out = harness.step()
        copies += len(out.copies)
        least = min(least, harness.scheduler.stats().free_blocks)
    assert copies > 0
    assert 64 - least < 4 * 6
    harness.run()


def test_a_group_takes_its_slots_together() -> None:
    """Two groups of three in four slots would wait for each other's if they took them one by one."""
    harness = Harness(Sizes(max_batch_size=4))
    for number in range(3):
        harness.add(with_beams(make_request(f"r{number}", [1, 2, number]), 3), stop_at(5))
    harness.add(make_request("p", [5, 6]), stop_at(3))
    harness.run()


def test_an_abort_gives_the_best_so_far() -> None:
    harness = Harness()
    harness.add(with_beams(make_request("r0", [1, 2, 3]), 3), stop_at(9))
    for _ in range(3):
        harness.step()
    harness.abort("r0")
    found = hypotheses(harness, "r0")
    assert [len(one.token_ids) for one in found] == [3, 3, 3]
    harness.run()


@pytest.mark.parametrize(
    ("sizes", "width", "setting"),
    [
        (Sizes(max_batch_size=2), 3, "max_batch_size=2"),
        (Sizes(max_batch_size=64), 17, "max_beam_width=16"),
        (Sizes(num_blocks=4), 4, "KvCacheConfig.max_tokens"),
    ],
)
def test_too_wide_a_search_is_refused(sizes: Sizes, width: int, setting: str) -> None:
    harness = Harness(sizes)
    request = with_beams(make_request("r0", [1, 2, 3, 4, 5]), width)
    with pytest.raises(RequestTooLargeError, match=setting):
        harness.scheduler.add(request, stop_at(5))
    harness.run()
