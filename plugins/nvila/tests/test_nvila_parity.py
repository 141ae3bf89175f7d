"""The whole engine against the composition, greedy: tokens equal, logits close."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from mmcore import RequestOutput, SamplingParams

if TYPE_CHECKING:
    from tests.conftest import Subject

ANSWER = SamplingParams(max_tokens=6, ignore_eos=True, logprobs=1)
Part = str | tuple[int, int, int]
"""Text, or a picture's width, height and seed."""

side = st.integers(8, 120)
words = st.text("abc XYZ.?é漢", min_size=1, max_size=20).map(lambda text: f"a{text}z")
parts = st.one_of(words, st.tuples(side, side, st.integers(0, 50)))
conversations = st.lists(parts, min_size=1, max_size=4)

VICUNA = (
    "<s>A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, "
    "detailed, and polite answers to the user's questions. USER: {} ASSISTANT:"
)
LLAMA_3 = (
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nYou are a helpful language and vision "
    "assistant. You are able to understand the visual content that the user provides, and assist the user "
    "with a variety of tasks using natural language.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n{}"
    "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
)
HERMES_2 = (
    "<|im_start|>system\nAnswer the questions.<|im_end|><|im_start|>user\n{}<|im_end|><|im_start|>assistant\n"
)
QWEN_2 = (
    "<|im_start|>system\nYou are a helpful assistant<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n"
    "<|im_start|>assistant\n"
)
FORMATS = {"vila1.5": VICUNA, "vila1.5-8b": LLAMA_3, "vila1.5-40b": HERMES_2}
"""Prompts as the published conversation classes write them; the others are Qwen2's."""


def picture(part: tuple[int, int, int]) -> Image.Image:
    """Coloured squares, so that pictures differ in more than noise."""
    width, height, seed = part
    small = np.random.default_rng(seed).integers(0, 256, (1 + height // 20, 1 + width // 20, 3), np.uint8)
    return Image.fromarray(small.repeat(20, 0).repeat(20, 1)[:height, :width])


def message(content: list[Part]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"type": "text", "text": part} if isinstance(part, str) else {"type": "image", "image": picture(part)}
        for part in content
    ]
    return [{"role": "user", "content": found}]


def ask(subject: Subject, content: list[Part]) -> RequestOutput:
    output = subject.llm.chat(message(content), ANSWER)
    assert isinstance(output, RequestOutput)
    return output


def expected_prompt(subject: Subject, content: list[Part]) -> list[Tensor | str]:
    """Texts and rows in order, each text tokenised by itself between media."""
    images = [picture(part) for part in content if not isinstance(part, str)]
    rows = [subject.reference.rows(image, alone=len(images) == 1) for image in images]
    slots = iter(subject.reference.slots(rows, alone=len(images) == 1))
    user: list[Tensor | str] = []
    for part in content:
        user += [part] if isinstance(part, str) else next(slots)
    before, after = FORMATS.get(subject.variant, QWEN_2).split("{}")
    return [before, *user, after]


@given(content=conversations)
@settings(max_examples=50)
def test_greedy_tokens_and_logits(subject: Subject, content: list[Part]) -> None:
    output = ask(subject, content)
    logits = subject.reference.after(expected_prompt(subject, content), output.token_ids)
    assert list(output.token_ids) == logits.argmax(1).tolist()
    found = [
        step[token].logprob for step, token in zip(output[0].logprobs or (), output.token_ids, strict=True)
    ]
    wanted = logits.log_softmax(1).max(1).values
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-4, atol=1e-4)


@given(content=conversations)
@settings(max_examples=12)
def test_the_prompt_is_the_published_one(subject: Subject, content: list[Part]) -> None:
    """Ids of the text around the rows, a placeholder for each row, none of which has an embedding."""
    reference, placeholder = subject.reference, subject.adapter.placeholder("image")
    assert placeholder is not None
    assert placeholder.token_id >= subject.adapter.decoder.vocab_size
    wanted: list[int] = []
    for part in expected_prompt(subject, content):
        wanted += reference.ids(part) if isinstance(part, str) else [placeholder.token_id] * len(part)
    assert list(ask(subject, content).prompt_token_ids) == wanted


@given(count=st.integers(1, 4), seed=st.integers(0, 50), text=words)
@settings(max_examples=6)
def test_videos(subject: Subject, count: int, seed: int, text: str) -> None:
    """Each frame's rows, a newline behind them."""
    frames = [picture((40, 30, seed + n)) for n in range(count)]
    video = {"type": "video", "video": np.stack([np.asarray(frame) for frame in frames])}
    content = [video, {"type": "text", "text": text}]
    output = subject.llm.chat([{"role": "user", "content": content}], ANSWER)
    assert isinstance(output, RequestOutput)
    before, after = FORMATS.get(subject.variant, QWEN_2).split("{}")
    shown: list[Tensor | str] = []
    for frame in frames:
        shown += [subject.reference.rows(frame, alone=False), "\n"]
    logits = subject.reference.after([before, *shown, text, after], output.token_ids)
    assert list(output.token_ids) == logits.argmax(1).tolist()


def test_answers_depend_on_the_picture(subject: Subject) -> None:
    """Else the parity above would say little."""
    answers = {ask(subject, [(60, 50, seed), "What is it?"]).token_ids for seed in range(16)}
    assert len(answers) >= 5


def test_a_batch_answers_as_each_alone(subject: Subject) -> None:
    asked: list[list[Part]] = [[(20 + 12 * n, 110 - 9 * n, n), "a" * n + "?"] for n in range(6)]
    together = subject.llm.chat([message(content) for content in asked], ANSWER, use_tqdm=False)
    assert [output.token_ids for output in together] == [ask(subject, c).token_ids for c in asked]
