"""The whole engine against transformers: tokens, log-probabilities, beams, reuse, errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mmcore_blip2.testing import TOKEN_IDS
from PIL import Image

from mmcore import RequestOutput, SamplingParams
from mmcore.errors import MediaLimitError, UnsupportedOptionError
from mmcore.inputs.ops import NumpyOps
from mmcore.request import DecodedMedia, MediaInfo

if TYPE_CHECKING:
    from tests.conftest import Subject

ANSWER = SamplingParams(max_tokens=8, ignore_eos=True, logprobs=0)
TOLERANCE = 1e-4
Size = tuple[int, int, int]
"""Width, height and seed of a picture."""

side = st.integers(1, 90)
sizes = st.tuples(side, side, st.integers(0, 50))
words = st.text("abc XYZ.?é漢", max_size=30)


def pixels(size: Size) -> np.ndarray:
    width, height, seed = size
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def picture(size: Size) -> Image.Image:
    return Image.fromarray(pixels(size))


def prompt(size: Size | None, text: str) -> dict[str, Any]:
    media = {} if size is None else {"multi_modal_data": {"image": picture(size)}}
    return {"prompt": text, **media}


def ask(subject: Subject, size: Size | None, text: str, params: SamplingParams = ANSWER) -> RequestOutput:
    output = subject.llm.generate(prompt(size, text), params, use_tqdm=False)
    assert isinstance(output, RequestOutput)
    return output


def text_ids(subject: Subject, text: str) -> list[int]:
    """BOS and the text for OPT, the text and EOS for T5; the reference starts a caption with the same."""
    ids = subject.reference.tokenizer(text, add_special_tokens=False).input_ids
    end = [TOKEN_IDS["</s>"]]
    return [*ids, *end] if subject.variant.startswith("t5") else [*end, *ids]


@given(size=st.none() | sizes, text=words)
@settings(max_examples=60)
def test_greedy_answers(subject: Subject, size: Size | None, text: str) -> None:
    output = ask(subject, size, text)
    shown = [] if size is None else [pixels(size)]
    logits = subject.reference.answered(shown, text_ids(subject, text), output.token_ids)
    assert list(output.token_ids) == logits.argmax(1).tolist()
    logprobs = output.outputs[0].logprobs
    assert logprobs is not None
    own = [step[token].logprob for step, token in zip(logprobs, output.token_ids, strict=True)]
    wanted = logits.log_softmax(1).max(1).values
    bound = TOLERANCE * float(logits.abs().max())
    torch.testing.assert_close(torch.tensor(own), wanted, rtol=0, atol=bound)


@given(size=sizes)
@settings(max_examples=40)
def test_pixels_and_rows_equal_the_reference(subject: Subject, size: Size) -> None:
    inputs, encoder = subject.adapter.inputs, subject.adapter.encoder
    others = [pixels(size), pixels((20, 30, 1))]
    infos = [MediaInfo("image", width=one.shape[1], height=one.shape[0]) for one in others]
    plans = inputs.measure(infos, [inputs] * 2)
    items = [
        inputs.preprocess(DecodedMedia("image", one), plan, NumpyOps())
        for one, plan in zip(others, plans, strict=True)
    ]
    shown = subject.reference.pixels.of(others[0]).transpose(1, 2, 0)
    patches = NumpyOps().patchify(shown[None], patch=6)
    np.testing.assert_allclose(items[0].arrays["patches"], patches, atol=2e-6)
    arrays = encoder.collate(items, plans)
    with torch.inference_mode():
        rows = subject.model.encoder(**{name: torch.from_numpy(array) for name, array in arrays.items()})
    wanted = torch.cat([subject.reference.rows(one) for one in others])
    assert len(rows) == sum(plan.rows for plan in plans)
    torch.testing.assert_close(rows, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("text", ["", "Question: how many? Answer:"])
@pytest.mark.parametrize("width", [2, 5])
def test_beams_equal_the_reference(subject: Subject, text: str, width: int) -> None:
    params = SamplingParams(use_beam_search=True, beam_width=width, n=2, max_tokens=6, ignore_eos=True)
    outputs = ask(subject, (30, 40, 7), text, params).outputs
    language = subject.reference.model.language_model
    embedded = subject.reference.embedded([pixels((30, 40, 7))], text_ids(subject, text))
    found = language.generate(
        inputs_embeds=embedded,
        attention_mask=torch.ones(embedded.shape[:2], dtype=torch.long),
        num_beams=width,
        num_return_sequences=2,
        max_new_tokens=6,
        eos_token_id=None,
        pad_token_id=TOKEN_IDS["<pad>"],
        do_sample=False,
    ).tolist()
    first = 1 if subject.variant.startswith("t5") else 0
    assert [list(output.token_ids) for output in outputs] == [row[first:] for row in found]


def test_many_in_flight_answer_as_each_alone(subject: Subject) -> None:
    asked: list[tuple[Size | None, str]] = [((20 + 9 * n, 80 - 9 * n, n % 3), "a" * n) for n in range(7)]
    asked += [((20, 80, 0), "another"), (None, "no picture")]
    together = subject.llm.generate([prompt(*one) for one in asked], ANSWER, use_tqdm=False)
    assert [output.token_ids for output in together] == [ask(subject, *one).token_ids for one in asked]


def test_answers_depend_on_picture_and_text(subject: Subject) -> None:
    """Else the parity above would say little."""
    assert len({ask(subject, (40, 40, seed), "What?").token_ids for seed in range(8)}) >= 4
    assert len({ask(subject, (40, 40, 1), "a" * n).token_ids for n in range(8)}) >= 4


def test_what_is_known_is_not_computed_again(subject: Subject) -> None:
    """The same picture and text run nothing and take no blocks; another text runs the text encoder alone."""
    scheduler = subject.llm._engine._scheduler
    first = ask(subject, (33, 44, 91), "reuse me, please")
    before = scheduler.stats()
    assert ask(subject, (33, 44, 91), "reuse me, please").token_ids == first.token_ids
    again = scheduler.stats()
    assert again.encoder_misses == before.encoder_misses
    ask(subject, (33, 44, 91), "and now another text")
    other = scheduler.stats()
    assert other.encoder_misses == before.encoder_misses
    if subject.variant.startswith("t5"):
        assert again.cross_hits == before.cross_hits + 1
        assert again.encoder_hits == before.encoder_hits
        assert again.cross_blocks == before.cross_blocks
        assert other.cross_hits == again.cross_hits
        assert other.encoder_hits == again.encoder_hits + 1
        assert other.cross_blocks > again.cross_blocks


def test_limits_are_named(subject: Subject) -> None:
    two = {"prompt": "x", "multi_modal_data": {"image": [picture((9, 9, 1)), picture((9, 9, 2))]}}
    with pytest.raises(MediaLimitError, match="max_items 1"):
        subject.llm.generate(two, ANSWER, use_tqdm=False)
    sized = prompt((9, 9, 1), "x") | {"mm_processor_kwargs": {"crop": 3}}
    with pytest.raises(UnsupportedOptionError, match="crop"):
        subject.llm.generate(sized, ANSWER, use_tqdm=False)
