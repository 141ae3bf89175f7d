"""Requests that can never fit fail alone, and name the setting to raise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from engine.bad_batch import (
    PARAMS,
    SMALL,
    Bench,
    noise,
)

from mmcore import LLM, KvCacheConfig, SamplingParams
from mmcore.errors import (
    ContextLengthError,
    RequestTooLargeError,
    SamplingParamsError,
)

SLOT = "<|vision_start|><|image_pad|><|vision_end|>"


@pytest.fixture(scope="module")
def small_bench(picture_family: Any) -> Any:
    cache = KvCacheConfig(max_tokens=64)
    with LLM(picture_family.folder, device="cpu", kv_cache_config=cache, encoder_cache_bytes=2_000) as llm:
        yield Bench(llm, [{"prompt": "Hello"}, {"prompt": "Who are you?"}])


def test_a_request_that_can_never_fit(small_bench: Bench) -> None:
    for bad, params, message in (
        (
            "a" * 60,
            PARAMS,
            "need 5 KV blocks of 16 tokens and the cache has 4; raise KvCacheConfig.max_tokens",
        ),
        ("a", SamplingParams(max_tokens=900), "raise KvCacheConfig.max_tokens .*or lower max_tokens"),
        ("a" * 70, SamplingParams(), "70 prompt tokens, max_tokens 1 need 5 KV blocks"),
    ):
        small_bench.expect(bad, RequestTooLargeError, message, params)


@pytest.mark.parametrize(
    ("beams", "most"), [({}, 64 - 20 + 1), ({"use_beam_search": True, "beam_width": 2}, 32 - 20 + 1)]
)
def test_an_answer_of_no_asked_length_is_as_long_as_fits(
    small_bench: Bench, beams: dict[str, Any], most: int
) -> None:
    output = small_bench.llm.generate("a" * 20, SamplingParams(ignore_eos=True, **beams))
    assert (len(output.token_ids), output.outputs[0].finish_reason) == (most, "length")
    with pytest.raises(RequestTooLargeError, match="lower max_tokens"):
        small_bench.llm.generate("a" * 20, SamplingParams(max_tokens=most + 1, **beams))


@pytest.mark.parametrize("priority", ["x", [1, 2], float("nan"), 1.5, None])
def test_a_priority_that_is_no_integer_fails_its_request_alone(small_bench: Bench, priority: Any) -> None:
    llm = small_bench.llm
    alone = small_bench.tokens("Hello")
    prepared = llm.preprocess("Hello")
    for bad in ("Hello", replace(prepared, priority=priority)):
        with pytest.raises(SamplingParamsError, match="priority is an integer"):
            llm.generate(bad, PARAMS, priority=priority)
    assert small_bench.tokens("Hello") == alone


def test_a_picture_that_can_never_fit(small_bench: Bench) -> None:
    bad = {"prompt": f"{SLOT}a", "multi_modal_data": {"image": noise(1, 84, 84)}}
    params = SamplingParams(max_tokens=2)
    small_bench.expect(
        bad, RequestTooLargeError, "takes 2304 bytes .*has 2000; raise encoder_cache_bytes", params
    )


def test_a_prompt_longer_than_max_seq_len(picture_family: Any) -> None:
    with LLM(picture_family.folder, device="cpu", max_seq_len=20, kv_cache_config=SMALL) as llm:
        bench = Bench(llm, [{"prompt": "Hello"}, {"prompt": "Who?"}])
        bench.expect("a" * 20, ContextLengthError, "20 tokens.*max_seq_len=20.*shorten it")
        longest = bench.run_beside_good("a" * 19)
        assert [output.outputs[0].finish_reason for output in longest] == ["length", "length"]
