"""What `SamplingParams` promise, through the whole engine."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from engine.bad_batch import SMALL, Bench, check_clean, hum, noise, picture_prompt, sound_prompt

from mmcore import LLM, KvCacheConfig, RequestOutput, SamplingParams
from mmcore.errors import (
    ConfigError,
    MMCoreError,
    RequestTooLargeError,
    SamplingParamsError,
    UnsupportedOptionError,
)
from mmcore.sampling_params import NOT_BUILT_YET

PROMPT = picture_prompt(noise(1))
FREE = {"ignore_eos": True}
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "temperature": {"temperature": 0.8},
    "top_k": {"temperature": 1.0, "top_k": 5},
    "top_p": {"temperature": 1.2, "top_p": 0.7},
    "all": {"temperature": 0.9, "top_k": 40, "top_p": 0.95},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_seed_gives_the_same_tokens_alone_and_in_a_batch(pictures_bench: Bench, way: str) -> None:
    llm = pictures_bench.llm
    params = SamplingParams(max_tokens=12, seed=7, **FREE, **WAYS[way])
    others = [SamplingParams(max_tokens=12, seed=s, temperature=1.0, **FREE) for s in range(3)]
    alone = llm.generate(PROMPT, params).token_ids
    for place in range(4):
        batch = [*others[:place], params, *others[place:]]
        assert llm.generate([PROMPT] * 4, batch)[place].token_ids == alone
    other = llm.generate(PROMPT, params.model_copy(update={"seed": 8})).token_ids
    assert (other == alone) == (way == "greedy")


def test_an_engine_with_a_seed_repeats_itself(picture_family: Any) -> None:
    def run(seed: int) -> list[tuple[int, ...]]:
        with LLM(picture_family.folder, device="cpu", seed=seed, kv_cache_config=SMALL) as llm:
            outputs = llm.generate([PROMPT] * 3, SamplingParams(max_tokens=8, temperature=1.0, **FREE))
            return [output.token_ids for output in outputs]

    first = run(1)
    assert run(1) == first
    assert len({*first}) == 3, "requests without a seed draw each their own"
    assert run(2) != first


@pytest.mark.parametrize("limits", [{}, {"max_batch_size": 1}, {"max_batch_size": 2, "max_num_tokens": 3}])
def test_n_sequences_are_n_requests_with_their_seeds(picture_family: Any, limits: dict[str, Any]) -> None:
    with LLM(picture_family.folder, device="cpu", kv_cache_config=SMALL, **limits) as llm:
        params = SamplingParams(max_tokens=8, temperature=1.0, seed=20, n=4, **FREE)
        whole = llm.generate(PROMPT, params)
        single = [params.model_copy(update={"seed": 20 + i, "n": 1}) for i in range(4)]
        apart = [output.token_ids for output in llm.generate([PROMPT] * 4, single)]
        assert [output.token_ids for output in whole.outputs] == apart
        assert [output.index for output in whole.outputs] == [0, 1, 2, 3]
        assert len(set(apart)) > 1
        assert whole.encoded_items == 1, "the picture is encoded once"
        check_clean(llm)


def test_the_prompt_of_n_sequences_is_computed_once(picture_family: Any) -> None:
    counts = []
    with LLM(
        picture_family.folder, device="cpu", kv_cache_config=KvCacheConfig(enable_block_reuse=False)
    ) as llm:
        submit = llm._engine._runner.submit

        def counted(output: Any) -> Any:
            counts.append(sum(output.row_counts))
            return submit(output)

        llm._engine._runner.submit = counted  # type: ignore[method-assign]
        whole = llm.generate(PROMPT, SamplingParams(max_tokens=5, n=4, temperature=1.0, **FREE))
    prompt = len(whole.prompt_token_ids)
    assert prompt <= sum(counts) <= prompt + 4 * 5


# ------------------------------------------------------------------ ends


def greedy(llm: LLM, **params: Any) -> RequestOutput:
    return llm.generate(PROMPT, SamplingParams(temperature=0.0, **params))


def test_max_tokens(pictures_bench: Bench) -> None:
    for count in (1, 2, 9):
        output = greedy(pictures_bench.llm, max_tokens=count, **FREE)
        assert len(output.token_ids) == count
        assert output.outputs[0].finish_reason == "length"


def test_stop_ids_and_min_tokens(pictures_bench: Bench) -> None:
    llm = pictures_bench.llm
    ids = greedy(llm, max_tokens=10, **FREE).token_ids
    stop = ids[4]
    first = ids.index(stop)
    output = greedy(llm, max_tokens=10, stop_token_ids=(stop,), **FREE)
    assert output.token_ids == ids[: first + 1]
    assert (output.outputs[0].finish_reason, output.outputs[0].stop_reason) == ("stop", stop)
    shown = greedy(llm, max_tokens=10, stop_token_ids=(stop,), include_stop_str_in_output=True, **FREE)
    assert shown.text != output.text
    assert shown.text.startswith(output.text)
    longer = greedy(llm, max_tokens=10, stop_token_ids=(stop,), min_tokens=first + 3, **FREE)
    assert len(longer.token_ids) > first + 3
    assert stop not in longer.token_ids[: first + 3], "a stop id is not even drawn before min_tokens"


def test_the_end_of_a_turn_and_ignore_eos(pictures_bench: Bench) -> None:
    llm = pictures_bench.llm
    ids = greedy(llm, max_tokens=10, **FREE).token_ids
    ended = greedy(llm, max_tokens=10, end_id=ids[3])
    assert ended.token_ids == ids[: ids.index(ids[3]) + 1]
    assert ended.outputs[0].finish_reason == "stop"
    assert greedy(llm, max_tokens=10, end_id=ids[3], **FREE).token_ids == ids


def ascii_answer(llm: LLM) -> tuple[SamplingParams, RequestOutput]:
    """A sampled answer that holds five letters in a row; one token is one byte here."""
    for seed in range(500):
        params = SamplingParams(max_tokens=40, temperature=1.0, seed=seed, **FREE)
        output = llm.generate(PROMPT, params)
        if any(c.isascii() and c.isprintable() for c in output.text) and stop_string(output.text):
            return params, output
    raise AssertionError("no answer with letters")


def stop_string(text: str) -> str:
    """Three plain letters in a row that come once, not at the start."""
    for start in range(3, len(text) - 3):
        part = text[start : start + 3]
        if part.isascii() and part.isprintable() and text.count(part) == 1 and part[0] not in text[:start]:
            return part
    return ""


def test_stop_strings_across_tokens(pictures_bench: Bench) -> None:
    llm = pictures_bench.llm
    params, free = ascii_answer(llm)
    stop = stop_string(free.text)
    before = free.text[: free.text.index(stop)]
    for given in (stop, (stop, "never there")):
        stopped = params.model_copy(update={"stop": (given,) if isinstance(given, str) else given})
        output = llm.generate(PROMPT, stopped)
        assert output.text == before
        assert (output.outputs[0].finish_reason, output.outputs[0].stop_reason) == ("stop", stop)
        assert output.token_ids == free.token_ids[: len(output.token_ids)]
    kept = stopped.model_copy(update={"include_stop_str_in_output": True})
    assert llm.generate(PROMPT, kept).text == before + stop
    seen = [o.text for o in llm.generate_async(PROMPT, stopped, streaming=True)]
    assert seen[-1] == before
    assert all(before.startswith(text) for text in seen), "a part of a stop string was shown"
    check_clean(llm)


def test_a_stop_string_that_the_last_token_completes(pictures_bench: Bench) -> None:
    llm = pictures_bench.llm
    params, free = ascii_answer(llm)
    stop = stop_string(free.text)
    stopped = llm.generate(PROMPT, params.model_copy(update={"stop": (stop,)}))
    exact = params.model_copy(update={"stop": (stop,), "max_tokens": len(stopped.token_ids)})
    output = llm.generate(PROMPT, exact)
    assert output.text == stopped.text
    assert (output.outputs[0].finish_reason, output.outputs[0].stop_reason) == ("stop", stop)


def test_a_stop_string_before_min_tokens_counts_for_nothing(pictures_bench: Bench) -> None:
    llm = pictures_bench.llm
    params, free = ascii_answer(llm)
    late = params.model_copy(update={"stop": (stop_string(free.text),), "min_tokens": 40})
    output = llm.generate(PROMPT, late)
    assert output.token_ids == free.token_ids
    assert output.text == free.text


def test_half_a_stop_string_at_the_end_is_shown(pictures_bench: Bench) -> None:
    """Held back while it may still become one; the answer is over, so it does not."""
    llm = pictures_bench.llm
    params, free = ascii_answer(llm)
    output = llm.generate(PROMPT, params.model_copy(update={"stop": (free.text[-1] + "x",)}))
    assert output.text == free.text


def test_a_family_with_bans_samples_within_them(sounds_bench: Bench) -> None:
    params = SamplingParams(max_tokens=30, temperature=5.0, n=4, seed=3, **FREE)
    output = sounds_bench.llm.generate(sound_prompt((hum(3), 16_000)), params)
    banned = set(sounds_bench.llm._engine._adapter.decoding.defaults.suppress_ids)
    assert banned
    assert not banned & {token for sequence in output.outputs for token in sequence.token_ids}


# ------------------------------------------------------------------ bans


def test_a_banned_text_is_in_no_answer(pictures_bench: Bench) -> None:
    """As text, with or without a blank; ids that spell it in another way than the tokenizer are others."""
    llm = pictures_bench.llm
    params, free = ascii_answer(llm)
    tokenizer = llm._engine.pipeline.tokenizer
    pairs = [(tokenizer.decode(pair), pair) for pair in pairwise(free.token_ids)]
    bad, ids = next(
        (text, pair)
        for text, pair in pairs
        if text == text.strip() and tokenizer.encode(text, special_tokens=False) == pair
    )
    for spelled in (bad, " " + bad):
        output = llm.generate(PROMPT, params.model_copy(update={"bad": (spelled,)}))
        assert ids not in list(pairwise(output.token_ids))
        assert len(output.token_ids) == len(free.token_ids)


def test_a_bias_bans_and_forces(pictures_bench: Bench) -> None:
    llm = pictures_bench.llm
    free = greedy(llm, max_tokens=8, **FREE).token_ids
    banned = greedy(llm, max_tokens=8, logit_bias=dict.fromkeys(set(free), -1e9), **FREE).token_ids
    assert not set(free) & set(banned)
    assert greedy(llm, max_tokens=8, logit_bias={free[2]: 1e9}, **FREE).token_ids == (free[2],) * 8
    ids = {"bad_token_ids": tuple(set(free))}
    assert greedy(llm, max_tokens=8, **ids, **FREE).token_ids == banned


# ------------------------------------------------------------------ too many sequences


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n": 129}, SamplingParamsError, r"SamplingParams\.n: .*128"),
        ({"best_of": 10**9}, SamplingParamsError, r"SamplingParams\.best_of: .*128"),
        ({"use_beam_search": True, "beam_width": 10**9}, SamplingParamsError, r"beam_width: .*128"),
        ({"use_beam_search": True, "beam_width": 128}, RequestTooLargeError, "max_beam_width=16"),
        ({"use_beam_search": True, "n": 100}, RequestTooLargeError, "max_beam_width=16"),
    ],
)
def test_more_sequences_than_the_limit(
    pictures_bench: Bench, options: dict[str, Any], error: type[MMCoreError], message: str
) -> None:
    """The setting is named; what is refused takes no memory, and the others answer as ever."""
    llm = pictures_bench.llm
    before = greedy(llm, max_tokens=4, **FREE).token_ids
    tracemalloc.start()
    with pytest.raises(error, match=message):
        llm.generate("Hello", SamplingParams(max_tokens=4, **options))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20
    assert greedy(llm, max_tokens=4, **FREE).token_ids == before
    check_clean(llm)


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize("name", NOT_BUILT_YET)
def test_sampling_options_that_are_not_built(name: str) -> None:
    value = {"logit_bias": {1: 1.0}, "bad": ["a"]}.get(name, 3)
    with pytest.raises(UnsupportedOptionError, match=f"SamplingParams.{name} is not built yet; leave it out"):
        SamplingParams(**{name: value})
    SamplingParams(**{name: NOT_BUILT_YET[name]})


@pytest.mark.parametrize(
    "options",
    [
        {"max_tokens": 0},
        {"min_tokens": -1},
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"temperature": "hot"},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.5},
        {"top_p": float("nan")},
        {"seed": -1},
        {"seed": 1 << 63},
        {"n": 0},
        {"n": 10**6},
        {"stop": ("",)},
        {"stop": 3},
        {"stop_token_ids": (-1,)},
        {"stop_token_ids": ("a",)},
        {"end_id": -1},
        {"min_tokens": 5, "max_tokens": 4},
        {"temprature": 1.0},
    ],
)
def test_sampling_options_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(SamplingParamsError, match=next(iter(options))):
        SamplingParams(**options)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"tensor_parallel_size": 2}, UnsupportedOptionError, "tensor_parallel_size=2.* not built yet"),
        ({"pipeline_parallel_size": 2}, UnsupportedOptionError, "pipeline_parallel_size=2.* not built yet"),
        ({"speculative_config": {}}, UnsupportedOptionError, "speculative_config.* not built yet"),
        ({"enable_lora": True}, UnsupportedOptionError, "enable_lora.* not built yet"),
        ({"quant_config": {}}, UnsupportedOptionError, "quant_config.* not built yet"),
        ({"kv_cache_config": {"dtype": "fp16"}}, ConfigError, "'auto' or 'fp8'"),
        ({"kv_cache_config": KvCacheConfig(host_cache_size=1)}, UnsupportedOptionError, "host_cache_size is"),
        ({"kv_cache_config": 3}, ConfigError, "kv_cache"),
        ({"max_batchsize": 3}, ConfigError, "no option 'max_batchsize'"),
        ({"dtype": "int8"}, ConfigError, "dtype: .*'float32'"),
        ({"device": "tpu"}, ConfigError, "device: .*'cpu'"),
        ({"max_seq_len": 10**6}, ConfigError, "past the model's limit of 1024"),
        ({"max_seq_len": 0}, ConfigError, "max_seq_len"),
        ({"max_batch_size": 0}, ConfigError, "max_batch_size"),
        ({"max_num_tokens": 0}, ConfigError, "max_num_tokens"),
        ({"preprocess_workers": 0}, ConfigError, "preprocess_workers"),
        ({"adapter": "nobody"}, MMCoreError, "no installed adapter is called 'nobody'; there are"),
    ],
)
def test_engine_options_that_are_refused(
    picture_family: Any, options: dict[str, Any], error: type[MMCoreError], message: str
) -> None:
    with pytest.raises(error, match=message):
        LLM(picture_family.folder, **{"device": "cpu", **options})


def test_cache_options_that_are_unknown_are_named() -> None:
    unknown: dict[str, Any] = {"sink_token_length": 4}
    with pytest.raises(ConfigError, match="sink_token_length"):
        KvCacheConfig(**unknown)


def test_a_model_that_is_no_name() -> None:
    for model in (None, 3, ["a"]):
        with pytest.raises(ConfigError, match="model is a folder or a name on the hub, not a"):
            LLM(model)  # type: ignore[arg-type]
