"""What ``generation_config.json`` says of beams and penalties, where a request says nothing itself."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcore import LLM, SamplingParams
from mmcore.adapter import DecodingDefaults
from mmcore.errors import CheckpointError, UnsupportedOptionError
from mmcore.inputs.decoding import decoding_defaults
from mmcore.sampling_defaults import with_defaults

STATED = {
    "num_beams": 3,
    "length_penalty": -1.0,
    "early_stopping": True,
    "repetition_penalty": 1.3,
}
FREE: dict[str, Any] = {"max_tokens": 6, "ignore_eos": True}
SPELLED = SamplingParams(
    use_beam_search=True,
    beam_width=3,
    length_penalty=-1.0,
    early_stopping=True,
    repetition_penalty=1.3,
    **FREE,
)
GREEDY = SamplingParams(temperature=0.0, repetition_penalty=1.3, **FREE)


def checkpoint_with(folder: Path, target: Path, stated: dict[str, Any]) -> Path:
    shutil.copytree(folder, target)
    path = target / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **stated}))
    return target


@pytest.fixture(scope="module")
def searching(picture_family: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    folder = checkpoint_with(picture_family.folder, tmp_path_factory.mktemp("searching") / "model", STATED)
    with LLM(folder, device="cpu") as llm:
        yield llm


@pytest.fixture(scope="module")
def hearing(sound_family: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    folder = checkpoint_with(sound_family.folder, tmp_path_factory.mktemp("hearing") / "model", STATED)
    with LLM(folder, device="cpu") as llm:
        yield llm


def test_a_request_that_says_nothing_searches_as_the_checkpoint(searching: LLM) -> None:
    plain, spelled = (searching.generate("Hello", p).outputs[0] for p in (SamplingParams(**FREE), SPELLED))
    assert plain.token_ids == spelled.token_ids
    assert plain.cumulative_logprob == spelled.cumulative_logprob is not None
    two = searching.generate("Hello", SamplingParams(n=2, **FREE)).outputs
    assert [one.token_ids for one in two] == [
        one.token_ids for one in searching.generate("Hello", SPELLED.model_copy(update={"n": 2})).outputs
    ]


@pytest.mark.parametrize("own", [{"use_beam_search": False}, {"temperature": 0.0}, {"stop": "never there"}])
def test_an_explicit_option_wins(searching: LLM, own: dict[str, Any]) -> None:
    """The repetition penalty stays: it goes with anything."""
    output = searching.generate("Hello", SamplingParams(**own, **FREE)).outputs[0]
    assert output.token_ids == searching.generate("Hello", GREEDY).outputs[0].token_ids
    assert output.cumulative_logprob is None


def test_a_stream_is_no_beam_search_unless_it_is_asked_for(searching: LLM) -> None:
    seen = list(searching.generate_async("Hello", SamplingParams(**FREE), streaming=True))
    assert seen[-1].token_ids == searching.generate("Hello", GREEDY).token_ids
    assert len(seen) > 1
    asked = list(searching.generate_async("Hello", SPELLED, streaming=True))
    assert [one.token_ids for one in asked] == [searching.generate("Hello", SPELLED).token_ids]


def test_a_family_s_stop_rule_keeps_beams_away(hearing: LLM, make_sound: Any) -> None:
    """The language is one token by a rule of its own; the link after it searches again."""

    def prompt(language: str | None) -> Any:
        return {
            "prompt": "",
            "multi_modal_data": {"audio": [make_sound(1, 0.7)]},
            "decoder_options": {"language": language},
        }

    heard = hearing.generate(prompt(None), SamplingParams(**FREE)).outputs[0]
    named = hearing.generate(prompt(heard.fields["language"]), SPELLED).outputs[0]
    assert heard.text == named.text
    assert heard.token_ids[1:] == named.token_ids
    with pytest.raises(UnsupportedOptionError, match=r"use_beam_search is not built .* language"):
        hearing.generate(prompt(None), SPELLED)


# ------------------------------------------------------------------ the rules alone


def test_they_are_read_as_transformers_has_them() -> None:
    read = decoding_defaults({**STATED, "min_p": 0.1})
    assert (read.num_beams, read.length_penalty, read.early_stopping) == (3, -1.0, True)
    assert (read.repetition_penalty, read.min_p) == (1.3, None)
    assert decoding_defaults({"min_p": 0.1, "do_sample": True}).min_p == 0.1
    assert decoding_defaults({"num_beams": None}).num_beams == 1


@pytest.mark.parametrize("value", [0, -1, 129, 10**9, "many", 2.5])
def test_a_number_of_beams_out_of_range(value: Any) -> None:
    with pytest.raises(CheckpointError, match="num_beams"):
        decoding_defaults({"num_beams": value})


OPTIONS: dict[str, Any] = {
    "temperature": 0.5,
    "top_k": 3,
    "top_p": 0.5,
    "min_p": 0.2,
    "best_of": 2,
    "stop": "x",
    "logprobs": 1,
    "n": 4,
}


@given(
    chosen=st.sets(st.sampled_from(sorted(OPTIONS)), max_size=3),
    own=st.sampled_from([None, False, True]),
    samples=st.booleans(),
    may_search=st.booleans(),
)
def test_the_default_is_never_an_error_of_the_request(
    chosen: set[str], own: bool | None, samples: bool, may_search: bool
) -> None:
    """What comes out passes the same checks as what a caller writes, and keeps all that the caller wrote."""
    defaults = DecodingDefaults(num_beams=3, length_penalty=2.0, temperature=0.7 if samples else None)
    try:
        params = SamplingParams(use_beam_search=own, **{name: OPTIONS[name] for name in chosen})
    except Exception:  # refused as it stands
        return
    found = with_defaults(params, defaults, may_search=may_search)
    SamplingParams(**found.model_dump())
    written = params.model_dump(exclude_none=True)
    assert {name: getattr(found, name) for name in written} == written
    if own is None:
        assert bool(found.use_beam_search) == (may_search and not samples and not chosen)
