"""The whole engine against transformers, greedy: tokens equal, log-probabilities close."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from mmcore import RequestOutput, SamplingParams

if TYPE_CHECKING:
    from tests.conftest import Subject

ANSWER = SamplingParams(max_tokens=8, ignore_eos=True)
Part = str | tuple[int, int, int]
"""Text, or a picture's width, height and seed."""

side = st.integers(8, 120)
words = st.text("abc XYZ.?é漢", min_size=1, max_size=20).map(lambda text: f"a{text}z")
parts = st.one_of(words, st.tuples(side, side, st.integers(0, 50)))
conversations = st.lists(parts, min_size=1, max_size=4)


def picture(part: tuple[int, int, int]) -> Image.Image:
    """Coloured squares, so that pictures differ in more than noise."""
    width, height, seed = part
    small = np.random.default_rng(seed).integers(0, 256, (1 + height // 20, 1 + width // 20, 3), np.uint8)
    return Image.fromarray(small.repeat(20, 0).repeat(20, 1)[:height, :width])


def ask(subject: Subject, content: list[Part]) -> RequestOutput:
    found: list[dict[str, Any]] = [
        {"type": "text", "text": part} if isinstance(part, str) else {"type": "image", "image": picture(part)}
        for part in content
    ]
    output = subject.llm.chat([{"role": "user", "content": found}], ANSWER)
    assert isinstance(output, RequestOutput)
    return output


@given(content=conversations)
@settings(max_examples=50)
def test_greedy_tokens(subject: Subject, content: list[Part]) -> None:
    output = ask(subject, content)
    images = [picture(part) for part in content if not isinstance(part, str)]
    rows = subject.reference.image_rows(images) if images else []
    logits = subject.reference.logits(output.prompt_token_ids, rows, output.token_ids)
    assert list(output.token_ids) == logits.argmax(1).tolist()


@given(content=conversations)
@settings(max_examples=30)
def test_the_prompt_is_the_checkpoint_s_own(subject: Subject, content: list[Part]) -> None:
    """Ids as transformers' template and tokenizer give them, each picture's placeholder repeated."""
    tokenizer = subject.reference.tokenizer
    said = [{"type": "text", "text": p} if isinstance(p, str) else {"type": "image"} for p in content]
    turns = [{"role": "user", "content": said}]
    text = tokenizer.apply_chat_template(
        turns, chat_template=subject.chat_template, add_generation_prompt=True, tokenize=False
    )
    first = [tokenizer.bos_token_id] if tokenizer.bos_token else []
    ids = [*first, *tokenizer(text, add_special_tokens=False).input_ids]
    found = list(ask(subject, content).prompt_token_ids)
    image = tokenizer.convert_tokens_to_ids("<image>")
    assert [token for n, token in enumerate(found) if token != image or found[n - 1] != image] == ids


def test_answers_depend_on_the_picture(subject: Subject) -> None:
    """Else the parity above would say little."""
    answers = {ask(subject, [(60, 50, seed), "What is it?"]).token_ids for seed in range(8)}
    assert len(answers) >= 5


def test_a_batch_answers_as_each_alone(subject: Subject) -> None:
    asked: list[list[Part]] = [[(20 + 12 * n, 110 - 9 * n, n), "a" * n + "?"] for n in range(6)]
    chats = [
        [
            {
                "role": "user",
                "content": [{"type": "image", "image": picture(c[0])}, {"type": "text", "text": c[1]}],
            }
        ]
        for c in asked
        if isinstance(c[0], tuple)
    ]
    together = subject.llm.chat(chats, ANSWER, use_tqdm=False)
    assert [output.token_ids for output in together] == [ask(subject, c).token_ids for c in asked]
