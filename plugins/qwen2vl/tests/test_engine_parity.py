"""The whole engine against transformers' own tokenizer, template, image processor and model, greedy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mmcore_qwen2vl.testing import TOKEN_IDS, write_tiny_checkpoint
from PIL import Image

from mmcore import LLM, KvCacheConfig, RequestOutput, SamplingParams

transformers = pytest.importorskip("transformers")

IMAGE = TOKEN_IDS["<|image_pad|>"]
ANSWER = SamplingParams(max_tokens=12, ignore_eos=True)
Part = str | tuple[int, int, int]
"""Text, or a picture's width, height and seed."""


@dataclass(frozen=True)
class Reference:
    """transformers' own parts over one folder."""

    tokenizer: Any
    processor: Any
    model: Any

    @classmethod
    def open(cls, folder: Path) -> Reference:
        return cls(
            transformers.AutoTokenizer.from_pretrained(folder),
            transformers.AutoImageProcessor.from_pretrained(folder, backend="pil"),
            transformers.AutoModelForImageTextToText.from_pretrained(folder, dtype="float32").eval(),
        )

    def prompt(self, parts: list[Part]) -> tuple[list[int], dict[str, torch.Tensor]]:
        """Token ids with each picture's placeholder repeated, and the model's picture arguments."""
        content = [{"type": "text", "text": p} if isinstance(p, str) else {"type": "image"} for p in parts]
        messages = [{"role": "user", "content": content}]
        text = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        pictures = [picture(p) for p in parts if not isinstance(p, str)]
        if not pictures:
            return self.tokenizer(text).input_ids, {}
        arrays = self.processor(pictures, return_tensors="pt")
        rows = iter(arrays["image_grid_thw"].prod(1).tolist())
        ids: list[int] = []
        for token in self.tokenizer(text).input_ids:
            ids += [token] * (next(rows) // 4 if token == IMAGE else 1)
        return ids, dict(arrays)

    @torch.inference_mode()
    def next_tokens(
        self, prompt: list[int], pictures: dict[str, torch.Tensor], answer: list[int]
    ) -> list[int]:
        """What greedy decoding says where each token of ``answer`` stands.

        A placeholder among the generated tokens is an ordinary token, so the rows are put in by hand.
        """
        tokens = torch.tensor([prompt + answer])
        slots = (tokens == IMAGE).int()
        slots[:, len(prompt) :] = 0
        embedded = self.model.get_input_embeddings()(tokens)
        positions, _ = self.model.model.get_rope_index(tokens, slots, pictures.get("image_grid_thw"))
        if pictures:
            rows = self.model.model.visual(pictures["pixel_values"], grid_thw=pictures["image_grid_thw"])
            embedded[slots.bool()] = rows.pooler_output
        logits = self.model(inputs_embeds=embedded, position_ids=positions).logits[0]
        ids: list[int] = logits[len(prompt) - 1 : -1].argmax(1).tolist()
        return ids


def picture(part: tuple[int, int, int]) -> Image.Image:
    """Coloured squares, so that pictures differ in more than noise."""
    width, height, seed = part
    generator = np.random.default_rng(seed)
    small = generator.integers(0, 256, (1 + height // 40, 1 + width // 40, 3), np.uint8)
    return Image.fromarray(small.repeat(40, 0).repeat(40, 1)[:height, :width])


def messages(parts: list[Part]) -> list[dict[str, Any]]:
    content = [
        {"type": "text", "text": p} if isinstance(p, str) else {"type": "image", "image": picture(p)}
        for p in parts
    ]
    return [{"role": "user", "content": content}]


def ask(llm: LLM, parts: list[Part]) -> RequestOutput:
    output = llm.chat(messages(parts), ANSWER)
    assert isinstance(output, RequestOutput)
    return output


def size() -> st.SearchStrategy[tuple[int, int, int]]:
    side = st.integers(1, 260)
    return st.tuples(side, side, st.integers(0, 50)).filter(lambda p: max(p[:2]) <= 200 * min(p[:2]))


# Texts begin and end with a letter: blanks at the ends are the template's own business.
words = st.text("abc XYZ.?é漢", min_size=1, max_size=20).map(lambda text: f"a{text}z")
conversations = st.lists(st.one_of(words, size()), min_size=1, max_size=5).filter(
    lambda parts: sum(not isinstance(part, str) for part in parts) <= 3
)


@pytest.fixture(scope="module", params=["2", "2.5"])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LLM, Reference]]:
    folder = write_tiny_checkpoint(tmp_path_factory.mktemp("engine"), request.param)
    cache = KvCacheConfig(max_tokens=4096)
    with LLM(folder, dtype="float32", device="cpu", max_num_tokens=96, kv_cache_config=cache) as llm:
        yield llm, Reference.open(folder)


@settings(max_examples=40)
@given(parts=conversations)
def test_greedy_tokens(both: tuple[LLM, Reference], parts: list[Part]) -> None:
    llm, reference = both
    ids, pictures = reference.prompt(parts)
    output = ask(llm, parts)
    assert list(output.prompt_token_ids) == ids
    answer = list(output.token_ids)
    assert answer == reference.next_tokens(ids, pictures, answer)
    assert len(answer) == 12


def test_answers_depend_on_the_picture(both: tuple[LLM, Reference]) -> None:
    """Else the parity above would say little."""
    llm, _ = both
    answers = {ask(llm, [(100, 80, seed), "What is it?"]).token_ids for seed in range(8)}
    assert len(answers) >= 6


def test_generate_gives_the_same_as_chat(both: tuple[LLM, Reference], tmp_path: Path) -> None:
    """A raw prompt with the family's own marks, the picture as a path."""
    llm, reference = both
    parts: list[Part] = [(90, 130, 1), "Read it."]
    picture((90, 130, 1)).save(tmp_path / "picture.png")
    raw = (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
        "<|vision_start|><|image_pad|><|vision_end|>Read it.<|im_end|>\n<|im_start|>assistant\n"
    )
    prompt = {"prompt": raw, "multi_modal_data": {"image": [str(tmp_path / "picture.png")]}}
    output = llm.generate(prompt, ANSWER)
    assert list(output.prompt_token_ids) == reference.prompt(parts)[0]
    assert output.token_ids == ask(llm, parts).token_ids


def test_a_batch_answers_as_each_alone(both: tuple[LLM, Reference]) -> None:
    llm, reference = both
    asked: list[list[Part]] = [[(20 + 30 * n, 200 - 20 * n, n), "a" * n + "?"] for n in range(9)]
    chats = [messages(parts) for parts in asked]
    for parts, output in zip(asked, llm.chat(chats, ANSWER, use_tqdm=False), strict=True):
        ids, pictures = reference.prompt(parts)
        answer = list(output.token_ids)
        assert answer == reference.next_tokens(ids, pictures, answer)
