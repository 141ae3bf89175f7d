"""Beam search through the engine against transformers' ``generate(num_beams=...)``, tokens and scores."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from engine.asked import sound
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from mmcore import LLM, KvCacheConfig, SamplingParams
from mmcore.errors import RequestTooLargeError

transformers = pytest.importorskip("transformers")
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def picture_llm(picture_family: Any) -> Any:
    cache = KvCacheConfig(max_tokens=2048, tokens_per_block=8)
    with LLM(picture_family.folder, device="cpu", kv_cache_config=cache, max_num_tokens=48) as llm:
        yield llm


@pytest.fixture(scope="module")
def sound_llm(sound_family: Any) -> Any:
    cache = KvCacheConfig(max_tokens=4096, tokens_per_block=8)
    with LLM(sound_family.folder, device="cpu", kv_cache_config=cache) as llm:
        yield llm


@pytest.fixture(scope="module")
def picture_reference(picture_family: Any) -> Any:
    folder = picture_family.folder
    return transformers.AutoModelForImageTextToText.from_pretrained(folder, dtype="float32").eval()


@pytest.fixture(scope="module")
def sound_reference(sound_family: Any) -> Any:
    folder = sound_family.folder
    return transformers.WhisperForConditionalGeneration.from_pretrained(folder, dtype="float32").eval()


class Side:
    """An engine, its family and the reference model. Hypothesis prints its name alone."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts


@pytest.fixture(scope="module")
def picture_side(picture_llm: LLM, picture_family: Any, picture_reference: Any) -> Side:
    return Side(picture_llm, picture_family, picture_reference)


@pytest.fixture(scope="module")
def sound_side(sound_llm: LLM, sound_family: Any, sound_reference: Any) -> Side:
    return Side(sound_llm, sound_family, sound_reference)


@st.composite
def searches(draw: st.DrawFn) -> dict[str, Any]:
    width = draw(st.integers(1, 5))
    return {
        "request": draw(st.integers(0, 7)),
        "width": width,
        "n": draw(st.integers(1, width)),
        "max_tokens": draw(st.integers(1, 10)),
        "length_penalty": draw(st.sampled_from([-1.0, 0.0, 0.7, 1.0, 2.0])),
        "early_stopping": draw(st.sampled_from([False, True, "never"])),
        "num_stops": draw(st.integers(0, 3)),
        "repetition_penalty": draw(st.sampled_from([None, None, 1.3])),
    }


def params_of(search: dict[str, Any], stops: tuple[int, ...]) -> SamplingParams:
    return SamplingParams(
        use_beam_search=True,
        beam_width=search["width"],
        n=search["n"],
        max_tokens=search["max_tokens"],
        length_penalty=search["length_penalty"],
        early_stopping=search["early_stopping"],
        repetition_penalty=search["repetition_penalty"],
        stop_token_ids=stops,
        ignore_eos=True,
    )


def options_of(search: dict[str, Any], stops: tuple[int, ...]) -> dict[str, Any]:
    return {
        "num_beams": search["width"],
        "num_return_sequences": search["n"],
        "max_new_tokens": search["max_tokens"],
        "length_penalty": search["length_penalty"],
        "early_stopping": search["early_stopping"],
        "repetition_penalty": search["repetition_penalty"] or 1.0,
        "eos_token_id": list(stops) or None,
        "pad_token_id": 0,
        "do_sample": False,
        "output_scores": True,
        "return_dict_in_generate": True,
    }


def assert_equal(outputs: Any, reference: Any, prompt: int, search: dict[str, Any], stops: Any) -> None:
    """A finished row of the reference is padded behind its stop id. One beam has no scores there."""
    for output, row in zip(outputs, reference.sequences[:, prompt:].tolist(), strict=True):
        end = next((i + 1 for i, token in enumerate(row) if token in stops), len(row))
        assert output.token_ids == tuple(row[: min(end, search["max_tokens"])])
    if search["width"] > 1:
        for output, score in zip(outputs, reference.sequences_scores.tolist(), strict=True):
            own = output.cumulative_logprob / len(output.token_ids) ** search["length_penalty"]
            assert own == pytest.approx(score, rel=TOLERANCE, abs=TOLERANCE)


def frequent(llm: LLM, prompt: Any, count: int) -> tuple[int, ...]:
    """Ids that do come up, so that beams end at different lengths."""
    first = llm.generate(
        prompt, SamplingParams(use_beam_search=True, beam_width=4, n=4, max_tokens=6, ignore_eos=True)
    )
    seen = [token for output in first.outputs for token in output.token_ids[1:]]
    return tuple(dict.fromkeys(seen))[:count]


@settings(max_examples=25)
@given(search=searches())
def test_pictures_equal_the_reference(picture_side: Side, search: dict[str, Any]) -> None:
    picture_llm, picture_family, picture_reference = picture_side.parts
    prepared = picture_family.requests[search["request"]]
    stops = frequent(picture_llm, prepared, search["num_stops"])
    outputs = picture_llm.generate(prepared, params_of(search, stops)).outputs
    ids = torch.tensor([prepared.token_ids])
    media: dict[str, Any] = {}
    if prepared.items:
        arrays = [picture_family.pipeline.preprocess(item).arrays for item in prepared.items]
        processor = transformers.AutoImageProcessor.from_pretrained(picture_family.folder, backend="pil")
        pictures = [Image.fromarray(one["frames"][0]) for one in arrays]  # whose size it leaves as it is
        media |= processor(pictures, return_tensors="pt")
        image = picture_family.adapter.placeholder("image").token_id
        media["mm_token_type_ids"] = (ids == image).int()
    reference = picture_reference.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), **media, **options_of(search, stops)
    )
    assert_equal(outputs, reference, ids.shape[1], search, stops)


@settings(max_examples=20)
@given(search=searches())
def test_sounds_equal_the_reference(sound_side: Side, search: dict[str, Any]) -> None:
    """The family's suppressed ids apply to each beam."""
    sound_llm, sound_family, sound_reference = sound_side.parts
    prepared = sound_family.requests[search["request"]]
    stops = frequent(sound_llm, prepared, search["num_stops"])
    outputs = sound_llm.generate(prepared, params_of(search, stops)).outputs
    arrays = sound_family.pipeline.preprocess(prepared.items[0]).arrays
    features = torch.from_numpy(next(iter(arrays.values()))).unsqueeze(0)
    defaults = sound_family.adapter.decoding.defaults
    ids = torch.tensor([prepared.token_ids])
    reference = transformers.GenerationMixin.generate(
        sound_reference,
        input_features=features,
        decoder_input_ids=ids,
        suppress_tokens=list(defaults.suppress_ids),
        begin_suppress_tokens=list(defaults.first_suppress_ids),
        forced_decoder_ids=None,
        **options_of(search, stops),
    )
    assert_equal(outputs, reference, ids.shape[1], search, stops)


def test_too_many_beams_are_refused_by_the_setting(picture_llm: LLM) -> None:
    with pytest.raises(RequestTooLargeError, match="max_beam_width=16"):
        picture_llm.generate("Hello", SamplingParams(use_beam_search=True, beam_width=17))


def test_a_stream_of_beams_shows_only_its_end(picture_llm: LLM) -> None:
    params = SamplingParams(
        use_beam_search=True, beam_width=3, n=2, max_tokens=5, ignore_eos=True, logprobs=0
    )
    seen = list(picture_llm.generate_async("Hello", params, streaming=True))
    assert len(seen) == 1
    assert seen[0].outputs == picture_llm.generate("Hello", params).outputs
    best, second = seen[0].outputs
    assert best.cumulative_logprob is not None
    assert best.logprobs is not None
    assert [list(one) for one in best.logprobs] == [[token] for token in best.token_ids]
    assert (best.cumulative_logprob, second.cumulative_logprob) == tuple(
        sorted((best.cumulative_logprob, second.cumulative_logprob or 0.0), reverse=True)
    )


# ------------------------------------------------------------------ sampled sequences, ranked


def test_best_of_gives_the_likeliest_sequences(picture_llm: LLM) -> None:
    """Of five, each the request with its own seed, the two with the highest cumulative logprob."""
    free: dict[str, Any] = {"max_tokens": 6, "temperature": 1.0, "ignore_eos": True, "logprobs": 3}
    outputs = picture_llm.generate("Hello", SamplingParams(n=2, best_of=5, seed=40, **free)).outputs
    singles = [
        picture_llm.generate("Hello", SamplingParams(seed=40 + i, **free)).outputs[0] for i in range(5)
    ]
    singles.sort(key=lambda one: -(one.cumulative_logprob or 0.0))
    assert [one.token_ids for one in outputs] == [one.token_ids for one in singles[:2]]
    for one in outputs:
        assert one.logprobs is not None
        chosen = [step[token] for step, token in zip(one.logprobs, one.token_ids, strict=True)]
        assert sum(c.logprob for c in chosen) == pytest.approx(one.cumulative_logprob)
        for step, own in zip(one.logprobs, chosen, strict=True):
            assert len(step) == (3 if own.rank is not None and own.rank <= 3 else 4)
            ranked = sorted(step.values(), key=lambda p: p.rank or 0)
            assert [p.logprob for p in ranked] == sorted((p.logprob for p in ranked), reverse=True)


def test_bad_texts_are_spelled_as_ids(picture_llm: LLM) -> None:
    free = SamplingParams(max_tokens=8, ignore_eos=True)
    word = picture_llm.generate("Hello", free).token_ids[1:3]
    banned = picture_llm.generate("Hello", free.model_copy(update={"bad_token_ids": (word,)})).token_ids
    assert word not in list(pairwise(banned))
    assert banned[1] == word[0], "the first of two ids alone is no bad word"


def test_a_better_priority_overtakes(picture_family: Any) -> None:
    with LLM(picture_family.folder, device="cpu", max_batch_size=1) as llm:
        params = SamplingParams(max_tokens=30, ignore_eos=True)
        running = llm.generate_async("Hello", params)
        late = llm.generate_async("Hello", params, priority=1)
        urgent = llm.generate_async("Hello", params, priority=-1)
        order = {name: h.result().timings.finished for name, h in (("late", late), ("urgent", urgent))}
        running.result()
        assert order["urgent"] < order["late"]


@settings(max_examples=20)
@given(search=searches())
def test_timestamp_rules_apply_to_each_beam(
    sound_side: Side, drives: Any, make_knobs: Any, search: dict[str, Any]
) -> None:
    """As the reference's own search with its own processor, in a chain's first link."""
    _, sound_family, sound_reference = sound_side.parts
    tokens = sound_family.adapter.decoding.tokens
    seconds = search["max_tokens"] % 3 / 2 + 0.5
    recording = sound(search["request"], seconds)
    prompt: Any = {
        "prompt": "",
        "multi_modal_data": {"audio": [recording]},
        "decoder_options": {"language": "de", "timestamps": "segment"},
    }
    prepared = sound_family.pipeline.prepare(prompt, request_id="t")
    stops = (tokens.end,)
    engine = drives["sounds"].engine(make_knobs())
    engine.add(replace(prepared, sampling=params_of(search, stops)))
    finished: Any = ()
    while not finished:
        finished = engine.step().finished
    outputs = finished[0].output.outputs
    arrays = sound_family.pipeline.preprocess(prepared.items[0]).arrays
    features = torch.from_numpy(next(iter(arrays.values()))).unsqueeze(0)
    defaults = sound_family.adapter.decoding.defaults
    ids = torch.tensor([prepared.token_ids])
    config = sound_reference.generation_config
    rules = transformers.generation.logits_process.WhisperTimeStampLogitsProcessor(
        config, begin_index=ids.shape[1]
    )
    reference = transformers.GenerationMixin.generate(
        sound_reference,
        input_features=features,
        decoder_input_ids=ids,
        suppress_tokens=list(defaults.suppress_ids),
        begin_suppress_tokens=list(defaults.first_suppress_ids),
        forced_decoder_ids=None,
        logits_processor=[rules],
        **options_of(search, stops),
    )
    assert_equal(outputs, reference, ids.shape[1], search, stops)


def test_a_worse_priority_ends_under_a_stream_of_better_ones(picture_family: Any) -> None:
    """It ages past those that come later; until then each of them overtakes it."""
    with LLM(picture_family.folder, device="cpu", max_batch_size=1) as llm:
        ageing = llm._engine._scheduler._limits.ageing_steps
        params = SamplingParams(max_tokens=40, ignore_eos=True)
        stream = deque(llm.generate_async("Hello", params, priority=-1) for _ in range(2))
        patient = llm.generate_async("Hello", SamplingParams(max_tokens=2, ignore_eos=True))
        overtook = 0
        while not patient.done and overtook < 2 * ageing // 40:
            stream.append(llm.generate_async("Hello", params, priority=-1))
            stream.popleft().result()
            overtook += not patient.done
        assert patient.done, "it starves"
        assert overtook > 2, "those who came later went first"
        for handle in stream:
            handle.abort()
