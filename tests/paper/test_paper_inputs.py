"""Paper adapters through the real input pipeline: rows as planned, whole ranges, keys that move."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from paper.asks import PICTURES, SOUNDS, Ask, asks
from paper.families import FAMILIES
from paper.whisper_chain import WINDOW

from mmcore.adapter import Fusion, Generation
from mmcore.errors import PlaceholderMismatchError, UnsupportedOptionError
from mmcore.inputs.pipeline import InputPipeline
from mmcore.request import PreparedRequest, SourceSpec
from mmcore.sampling_params import SamplingParams

INTERLEAVED = [name for name, family in FAMILIES.items() if family.adapter().fusion is Fusion.INTERLEAVED]


def pipeline(family: str) -> InputPipeline:
    return InputPipeline(FAMILIES[family].adapter(), FAMILIES[family].files)


def prepare(family: str, text: str = "", media: list[Any] | None = None, **fields: Any) -> PreparedRequest:
    modality = FAMILIES[family].modalities[0]
    usual = [SOUNDS[1] if modality == "audio" else PICTURES[2]]
    data = {modality: usual if media is None else media}
    prompt: Any = {"prompt": text, "multi_modal_data": data, **fields}
    return pipeline(family).prepare(prompt, request_id="r")


def _generation(request: PreparedRequest, logprob: float = 0.0) -> Generation:
    return Generation(request=request, ids=(65,), text="A", logits=(0.0,), logprobs=(logprob,))


def keys(request: PreparedRequest) -> tuple[bytes, ...]:
    own = [key for item in request.items for key in (item.processor_key, item.encoder_key)]
    return (request.root_key, *own, *([request.cross.key] if request.cross else []))


# ------------------------------------------------------------------ rows and ranges


@pytest.mark.parametrize("family", INTERLEAVED)
@settings(max_examples=settings().max_examples // 3)
@given(ask=asks())
def test_ranges_are_ordered_disjoint_and_cover_each_items_rows_once(family: str, ask: Ask) -> None:
    adapter = FAMILIES[family].adapter()
    request = pipeline(family).prepare(ask.prompt(adapter), request_id="r")
    assert all(a.offset + a.length <= b.offset for a, b in pairwise(request.ranges))
    for number, item in enumerate(request.items):
        rows = [row for r in request.ranges if r.item == number for row in range(r.row, r.row + r.length)]
        assert rows == list(range(item.plan.rows))
    covered = {i for r in request.ranges for i in range(r.offset, r.offset + r.length)}
    placeholder = adapter.placeholders[0].token_id
    assert covered == {i for i, token in enumerate(request.token_ids) if token == placeholder}


@pytest.mark.parametrize("family", INTERLEAVED)
@settings(max_examples=settings().max_examples // 3)
@given(ask=asks())
def test_the_same_prompt_as_tokens_is_the_same_request(family: str, ask: Ask) -> None:
    """Written out, or with one placeholder id a medium."""
    adapter, inputs = FAMILIES[family].adapter(), pipeline(family)
    prompt: Any = ask.prompt(adapter)
    wanted = inputs.prepare(prompt, request_id="r")
    short = inputs.tokenizer.encode(prompt.pop("prompt"), special_tokens=True)
    if family == "blip2-opt":  # its template writes the BOS before the first words
        at = next(i for i, token in enumerate(short) if token < 256)
        short = (*short[:at], 256, *short[at:])
    for ids in (short, wanted.token_ids):
        as_tokens: Any = {"prompt_token_ids": ids, **prompt}
        found = inputs.prepare(as_tokens, request_id="r")
        assert (found.token_ids, found.ranges, keys(found)) == (wanted.token_ids, wanted.ranges, keys(wanted))


@pytest.mark.parametrize("family", INTERLEAVED)
def test_more_placeholders_than_media_are_refused(family: str) -> None:
    slot = FAMILIES[family].adapter().placeholders[0].text
    with pytest.raises(PlaceholderMismatchError, match="2 image placeholder"):
        prepare(family, f"{slot}{slot}")


def test_ordinary_tokens_lie_between_the_tiles_of_one_picture() -> None:
    request = prepare("nvila", "?")
    newlines = [request.token_ids[r.offset + r.length] for r in request.ranges]
    assert len(request.ranges) > 2
    assert newlines == [ord("\n")] * len(request.ranges)
    assert {r.item for r in request.ranges} == {0}


def test_t5_reads_the_text_beside_the_rows_and_decodes_apart() -> None:
    request = prepare("blip2-t5", "what")
    assert request.cross is not None
    assert bytes(request.cross.text_ids[:-1]) == b"what"
    assert request.cross.text_ids[-1] == 256  # its EOS, though "</s>" typed by a user would be text
    assert (request.cross.length, request.token_ids) == (8 + 5, (258,))
    typed = pipeline("blip2-t5").prepare_chat([{"role": "user", "content": "</s>"}], request_id="r")
    assert typed.cross is not None
    assert typed.cross.text_ids == (*b"</s>", 256)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_core_counts_the_bytes_of_rows(family: str) -> None:
    (item,) = prepare(family).items
    assert item.cost.output_bytes == item.plan.rows * item.plan.width * 4


def test_m_rope_positions_of_a_whole_prompt_and_its_delta() -> None:
    request = prepare("qwen2vl", "?")
    positions, (tall, wide) = request.positions, (2, 3)
    assert positions is not None
    assert positions.values.dtype == np.int32
    assert positions.values[:, -1].tolist() == [max(tall, wide)] * 3
    assert positions.delta == max(tall, wide) - tall * wide


# ------------------------------------------------------------------ keys

MOVES: dict[str, dict[str, Any]] = {
    "another picture": {"media": [PICTURES[3]]},
    "a salt": {"cache_salt": "tenant"},
    "a uuid": {"multi_modal_uuids": {"image": ["mine"]}},
}


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "whisper"])
@pytest.mark.parametrize("change", MOVES)
def test_what_moves_the_keys_of_an_item(family: str, change: str) -> None:
    before, after = prepare(family), prepare(family, **MOVES[change])
    assert before.items[0].processor_key != after.items[0].processor_key
    assert before.items[0].encoder_key != after.items[0].encoder_key
    if before.cross and after.cross:
        assert before.cross.key != after.cross.key
        assert before.root_key != after.root_key


@pytest.mark.parametrize("family", FAMILIES)
def test_what_leaves_every_key(family: str) -> None:
    adapter = FAMILIES[family].adapter()
    prompt = Ask((0, "what")).prompt(adapter)
    usual = pipeline(family).prepare(prompt, request_id="r")
    hot = SamplingParams(temperature=1.0, n=2, max_tokens=3)
    other = pipeline(family).prepare(prompt, hot, request_id="other", priority=3)
    assert keys(usual) == keys(other)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "blip2-t5"])
def test_text_leaves_the_keys_of_items_and_cross_states(family: str) -> None:
    assert keys(prepare(family, "what")) == keys(prepare(family, "how?"))


def test_t5_text_is_in_the_cross_key_and_not_in_the_items() -> None:
    what, how = prepare("blip2-t5", "what"), prepare("blip2-t5", "how?")
    assert what.items[0].encoder_key == how.items[0].encoder_key
    assert len({r.cross.key for r in (what, how) if r.cross} | {what.root_key, how.root_key}) == 4


def test_without_a_picture_cross_states_are_still_a_tenants_own() -> None:
    mine, other = (prepare("blip2-t5", "what", media=[], cache_salt=salt) for salt in ("", "tenant"))
    assert mine.cross
    assert other.cross
    assert mine.cross.key != other.cross.key


def test_a_neighbour_that_changes_an_items_plan_changes_its_key() -> None:
    """One picture alone is tiled; beside another it is not."""
    alone, beside = prepare("nvila", media=[PICTURES[4]]), prepare("nvila", media=[PICTURES[4], PICTURES[0]])
    assert alone.items[0].plan != beside.items[0].plan
    assert alone.items[0].encoder_key != beside.items[0].encoder_key
    qwen = [prepare("qwen2vl", media=media) for media in ([PICTURES[4]], [PICTURES[4], PICTURES[0]])]
    assert qwen[0].items[0].encoder_key == qwen[1].items[0].encoder_key


def test_an_option_moves_the_key_of_its_own_item_only() -> None:
    media = [PICTURES[2], PICTURES[2]]
    request = prepare("qwen2vl", media=media, mm_processor_kwargs=[{"factor": 14}, None])
    plain = prepare("qwen2vl", media=media)
    assert request.items[0].plan.rows == 4 * request.items[1].plan.rows
    assert request.items[0].encoder_key != plain.items[0].encoder_key
    assert request.items[1].encoder_key == plain.items[1].encoder_key
    with pytest.raises(UnsupportedOptionError, match="depth"):
        prepare("qwen2vl", media=media, mm_processor_kwargs={"depth": 1})


def test_an_extensions_encoder_of_the_same_name_and_fields_is_another_encoder() -> None:
    adapter, files = FAMILIES["llava"].adapter(), FAMILIES["llava"].files
    twin = type(type(adapter.encoder).__name__, (type(adapter.encoder),), {"__module__": "elsewhere"})
    other = InputPipeline(replace(adapter, encoder=twin("llava")), files)
    prompt = Ask((0,)).prompt(adapter)
    mine, extended = (p.prepare(prompt, request_id="r").items[0] for p in (pipeline("llava"), other))
    assert mine.processor_key == extended.processor_key
    assert mine.encoder_key != extended.encoder_key


# ------------------------------------------------------------------ follow-ups


def test_each_window_has_keys_and_a_source_of_its_own() -> None:
    inputs, decoding = pipeline("whisper"), FAMILIES["whisper"].adapter().decoding
    first = inputs.prepare(
        {"prompt": "", "multi_modal_data": {"audio": SOUNDS[1]}, "decoder_options": {"language": 65}},
        request_id="r",
    )
    link = decoding.follow_up(first, decoding.finish(_generation(first)))
    assert link is not None
    second = inputs.prepare_follow_up(first, link)
    assert second.items[0].plan.source == SourceSpec(sample_rate=16_000, start=WINDOW, stop=2 * WINDOW)
    assert not set(keys(first)) & set(keys(second))
    assert (second.token_ids, second.decoder_options) == (first.token_ids, first.decoder_options)
    heard = [inputs.preprocess(request.items[0]).arrays["media"] for request in (first, second)]
    assert np.array_equal(np.concatenate(heard), SOUNDS[1][0][: 2 * WINDOW])


def test_a_link_that_changes_the_prompt_or_the_temperature_keeps_every_key() -> None:
    inputs, decoding = pipeline("whisper"), FAMILIES["whisper"].adapter().decoding
    first = inputs.prepare({"prompt": "", "multi_modal_data": {"audio": SOUNDS[0]}}, request_id="r")
    language = decoding.follow_up(first, decoding.finish(_generation(first)))
    assert language is not None
    second = inputs.prepare_follow_up(first, language)
    poor = decoding.follow_up(second, decoding.finish(_generation(second, logprob=-9.0)))
    assert poor is not None
    third = inputs.prepare_follow_up(second, poor)
    assert (first.token_ids, second.token_ids) == ((257,), (257, 65, 258))
    assert (second.sampling.temperature, third.sampling.temperature) == (None, 0.4)
    assert keys(first) == keys(second) == keys(third)
