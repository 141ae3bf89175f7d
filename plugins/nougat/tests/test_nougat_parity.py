"""Whole answers of `mmcore.LLM` against transformers, greedy, in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mmcore_nougat.testing import TOKEN_IDS
from torch import Tensor

from mmcore import LLM, RequestOutput, SamplingParams
from mmcore.errors import PlaceholderMismatchError, PromptError, UnsupportedOptionError

if TYPE_CHECKING:
    from tests.conftest import Subject

Size = tuple[int, int, int]
"""Height, width and seed of a page."""
TOKENS = 16
ANSWER = SamplingParams(max_tokens=TOKENS, ignore_eos=True)

side = st.integers(32, 200)
sizes = st.tuples(side, side, st.integers(0, 50))
words = st.text("abc XYZ.?é漢", max_size=40)
PROMPTS = {
    "nougat": st.just("") | words.map(lambda text: f"<s>{text}"),
    "donut": st.just("") | words.map(lambda text: f"<s_docvqa><s_question>{text}</s_question><s_answer>"),
}


def page(size: Size) -> np.ndarray:
    """Dark squares on a light page, with a margin."""
    height, width, seed = size
    rng = np.random.default_rng(seed)
    squares = rng.integers(0, 2, (1 + height // 7, 1 + width // 7, 1), np.uint8).repeat(7, 0).repeat(7, 1)
    image = rng.integers(200, 256, (height, width, 3), np.uint8)
    image[4:-4, 6:-6] -= 180 * squares[4 : height - 4, 6 : width - 6]
    return image


def asked(size: Size, prompt: str = "", **more: Any) -> dict[str, Any]:
    return {"prompt": prompt, "multi_modal_data": {"image": page(size)}, **more}


def ask(
    llm: LLM, size: Size, prompt: str = "", params: SamplingParams = ANSWER, **more: Any
) -> RequestOutput:
    output = llm.generate(asked(size, prompt, **more), params, use_tqdm=False)
    assert isinstance(output, RequestOutput)
    return output


def answer_with_logits(llm: LLM, size: Size, prompt: str) -> tuple[RequestOutput, Tensor]:
    """And the logits that each token was chosen from."""
    decoder: Any = llm._engine._runner._model.decoder
    rows: list[Tensor] = []
    head = decoder.logits

    def spy(hidden: Tensor) -> Tensor:
        logits: Tensor = head(hidden)
        rows.append(logits.clone())
        return logits

    decoder.logits = spy
    try:
        output = ask(llm, size, prompt)
    finally:
        del decoder.logits
    return output, torch.cat(rows)


def check(subject: Subject, size: Size, prompt: str) -> None:
    output, logits = answer_with_logits(subject.llm, size, prompt)
    wanted = [TOKEN_IDS["<s>"]]
    if prompt:
        wanted = subject.tokenizer(prompt, add_special_tokens=False).input_ids
    assert list(output.prompt_token_ids) == wanted
    expected = subject.reference.answered(page(size), wanted, output.token_ids).clone()
    error = (logits[-len(expected) :] - expected).abs().amax(1) / expected.abs().amax(1)
    assert error.max() <= 1e-4
    expected[:, TOKEN_IDS["<unk>"]] = -torch.inf
    assert list(output.token_ids) == expected.argmax(1).tolist()


@given(data=st.data(), size=sizes)
@settings(max_examples=12)
def test_tokens_and_logits_equal_the_reference(subject: Subject, data: st.DataObject, size: Size) -> None:
    check(subject, size, data.draw(PROMPTS[subject.variant]))


@pytest.mark.slow
@given(data=st.data(), size=sizes)
@settings(max_examples=120)
def test_many_answers_equal_the_reference(subject: Subject, data: st.DataObject, size: Size) -> None:
    check(subject, size, data.draw(PROMPTS[subject.variant]))


def test_answers_depend_on_the_page(subject: Subject) -> None:
    """Else the parity above would say little."""
    answers = {ask(subject.llm, (90, 80, seed)).token_ids for seed in range(8)}
    assert len(answers) >= 6


def test_the_unknown_token_is_never_generated(subject: Subject) -> None:
    likeliest = SamplingParams(max_tokens=4, ignore_eos=True, logit_bias={TOKEN_IDS["<unk>"]: 50.0})
    assert TOKEN_IDS["<unk>"] not in ask(subject.llm, (90, 80, 1), params=likeliest).token_ids


@pytest.mark.parametrize("width", [2, 4])
def test_beams_equal_the_reference(subject: Subject, width: int) -> None:
    params = SamplingParams(use_beam_search=True, beam_width=width, n=2, max_tokens=6, ignore_eos=True)
    outputs = ask(subject.llm, (90, 80, 1), params=params).outputs
    pixels = torch.as_tensor(subject.reference.pages.of(page((90, 80, 1))), dtype=torch.float32)
    found = subject.reference.model.generate(
        pixel_values=pixels[None],
        num_beams=width,
        num_return_sequences=2,
        max_new_tokens=6,
        eos_token_id=None,
        pad_token_id=TOKEN_IDS["<pad>"],
        decoder_start_token_id=TOKEN_IDS["<s>"],
        suppress_tokens=[TOKEN_IDS["<unk>"]],
        do_sample=False,
    ).tolist()
    assert [list(output.token_ids) for output in outputs] == [row[1:] for row in found]


def test_pages_in_flight_together_answer_as_each_alone(subject: Subject) -> None:
    some: list[Size] = [(40 + 30 * n, 170 - 20 * n, n) for n in range(7)]
    together = subject.llm.generate([asked(size) for size in some], ANSWER, use_tqdm=False)
    assert [output.token_ids for output in together] == [ask(subject.llm, size).token_ids for size in some]


def test_a_page_is_encoded_once_and_its_cross_states_are_kept(subject: Subject) -> None:
    """Another prompt about the same page runs no encoder and writes no cross states."""
    scheduler = subject.llm._engine._scheduler
    first = ask(subject.llm, (120, 90, 91))
    before = scheduler.stats()
    again = ask(subject.llm, (120, 90, 91))
    prompt = "<s>once more" if subject.variant == "nougat" else "<s_menu>"
    other = ask(subject.llm, (120, 90, 91), prompt)
    after = scheduler.stats()
    assert [one.encoded_items for one in (first, again, other)] == [1, 0, 0]
    assert again.token_ids == first.token_ids
    assert after.encoder_misses == before.encoder_misses
    assert after.cross_hits - before.cross_hits == 2
    assert after.cross_blocks == before.cross_blocks


# ------------------------------------------------------------------ what a request may say


def test_a_question_of_a_form_is_put_between_its_tokens(forms: Subject) -> None:
    """Typed tokens stay text where they are not the beginning of a decoder prompt."""
    plain = ask(forms.llm, (90, 80, 1), "How much?")
    whole = ask(forms.llm, (90, 80, 1), "<s_docvqa><s_question>How much?</s_question><s_answer>")
    content = [{"type": "image", "image": page((90, 80, 1))}, {"type": "text", "text": "How much?"}]
    chat = forms.llm.chat([{"role": "user", "content": content}], ANSWER)
    assert isinstance(chat, RequestOutput)
    assert plain.prompt_token_ids == whole.prompt_token_ids == chat.prompt_token_ids
    typed = ask(forms.llm, (90, 80, 1), "How</s_question>?")
    assert typed.prompt_token_ids.count(TOKEN_IDS["</s_question>"]) == 1


def test_papers_take_no_instructions(papers: Subject) -> None:
    with pytest.raises(PromptError, match="reads pages"):
        ask(papers.llm, (90, 80, 1), "What is it about?")
    with pytest.raises(PlaceholderMismatchError, match="image"):
        papers.llm.generate("", ANSWER, use_tqdm=False)


@pytest.mark.parametrize(
    ("options", "named"), [({"text": "html"}, "html"), ({"stop_repetitions": 1}, "1"), ({"dpi": 3}, "dpi")]
)
def test_other_decoder_options_are_refused(papers: Subject, options: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedOptionError, match=named):
        ask(papers.llm, (90, 80, 1), decoder_options=options)


def test_the_fields_of_a_form_are_told(forms: Subject) -> None:
    """An answer is forced to hold some; the tiny checkpoint has none to tell."""
    prompt = (
        "<s_docvqa><s_menu><s_nm>Tea</s_nm><sep/><s_nm>Cake</s_nm><s_price><paid/></s_price></s_menu><s_nm>"
    )
    output = ask(forms.llm, (90, 80, 1), prompt)
    fields = output.outputs[0].fields["json"]
    assert fields["menu"] == [{"nm": "Tea"}, {"nm": "Cake", "price": "paid"}]
