"""What can never run is refused at once, and the refusal names the setting to raise."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core.harness import Harness, Sizes
from core.sample_requests import Picture, make_cross_request, make_interleaved_request, make_request, stop_at

from mmcore.core.sequence import StopConditions
from mmcore.errors import (
    InputError,
    PromptError,
    RequestTooLargeError,
    SamplingParamsError,
    UnsupportedOptionError,
)
from mmcore.request import PlaceholderRange, PreparedRequest

SIZES = Sizes(num_blocks=4, block_size=4, encoder_bytes=60, max_num_tokens=6)


def refused(request: PreparedRequest, stop: StopConditions, *words: str) -> None:
    harness = Harness(SIZES)
    with pytest.raises(RequestTooLargeError) as caught:
        harness.add(request, stop)
    assert all(word in str(caught.value) for word in (repr(request.request_id), *words))
    assert not harness.scheduler.has_unfinished


def admitted(request: PreparedRequest, stop: StopConditions) -> None:
    harness = Harness(SIZES)
    harness.add(request, stop)
    harness.run()
    assert request.request_id in harness.done


def test_prompt_and_answer_fit_the_kv_cache() -> None:
    admitted(make_request("r", [1, 2, 3]), stop_at(14))
    refused(make_request("r", [1, 2, 3]), stop_at(15), "KvCacheConfig.max_tokens", "free_gpu_memory_fraction")


def test_cross_states_count_too() -> None:
    refused(
        make_cross_request("r", [1, 2], [Picture(1, 6)]), stop_at(8), "7 cross", "KvCacheConfig.max_tokens"
    )


def test_an_item_fits_the_encoder_cache() -> None:
    admitted(make_request("r", [Picture(1, 6), 1]), stop_at(2))
    refused(make_request("r", [Picture(1, 7), 1]), stop_at(2), "item 0", "70 bytes", "encoder_cache_bytes")


def test_items_that_are_held_together_fit_together() -> None:
    admitted(make_request("r", [Picture(1, 4), Picture(2, 4)]), stop_at(2))
    refused(make_interleaved_request("r", Picture(1, 4), Picture(2, 4)), stop_at(2), "items 0 to 1 together")
    refused(make_cross_request("r", [1], [Picture(1, 4), Picture(2, 4)]), stop_at(1), "encoder_cache_bytes")


def test_one_picture_twice_is_held_once() -> None:
    admitted(make_interleaved_request("r", Picture(1, 4), Picture(1, 4)), stop_at(2))


def test_an_atomic_item_fits_a_step() -> None:
    small = Sizes(num_blocks=20, block_size=4, encoder_bytes=1000, max_num_tokens=6)
    harness = Harness(small)
    harness.add(make_request("fits", [1, Picture(1, 6, atomic=True), 1]), stop_at(2))
    with pytest.raises(RequestTooLargeError, match=r"7 tokens .* raise max_num_tokens"):
        harness.add(make_request("r", [Picture(1, 7, atomic=True), 1]), stop_at(2))
    harness.run()


def test_what_is_no_request_is_refused() -> None:
    harness = Harness(SIZES)
    with pytest.raises(PromptError, match="no tokens"):
        harness.add(make_request("r", []), stop_at(2))
    with pytest.raises(SamplingParamsError, match="max_tokens is 0"):
        harness.add(make_request("r", [1]), stop_at(0))


def test_ranges_beside_cross_states_are_refused_by_name() -> None:
    both = replace(make_cross_request("r", [1, 2], [Picture(1, 1)]), ranges=(PlaceholderRange(0, 1, 0, 0),))
    with pytest.raises(UnsupportedOptionError, match="cross states"):
        Harness(SIZES).add(both, stop_at(2))


def test_a_request_id_is_in_use_until_it_has_ended() -> None:
    harness = Harness(SIZES)
    harness.add(make_request("r", [1, 2]), stop_at(2))
    with pytest.raises(InputError, match="in use"):
        harness.scheduler.add(make_request("r", [3]), stop_at(2))
    harness.run()
    harness.add(make_request("r", [1, 2]), stop_at(2))
    harness.run()
