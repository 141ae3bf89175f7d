"""The embedded reader: a sample of its held-out set, and pictures with nothing to read."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mmcore_qwen2vl
import numpy as np
import pytest

from mmcore import LLM, KvCacheConfig, SamplingParams

READER = Path(mmcore_qwen2vl.__file__).parent / "reader"
HELDOUT = Path(__file__).parent / "data" / "heldout.zip"
GREEDY = SamplingParams(max_tokens=80, temperature=0.0)


@pytest.fixture(scope="module")
def reader() -> Iterator[LLM]:
    with LLM(READER, device="cpu") as llm:
        yield llm


def answers(reader: LLM, items: list[dict[str, Any]]) -> list[str]:
    with zipfile.ZipFile(HELDOUT) as archive:
        prompts: list[Any] = [
            {
                "prompt": item["prompt"],
                "multi_modal_data": {"image": [archive.read(n) for n in item["images"]]},
            }
            for item in items
        ]
    return [output.text for output in reader.generate(prompts, GREEDY, use_tqdm=False)]


def test_a_tenth_of_the_heldout_lines_is_read_exactly(reader: LLM) -> None:
    with zipfile.ZipFile(HELDOUT) as archive:
        items = json.loads(archive.read("items.json"))[::10]
    right = sum(a == item["answer"] for a, item in zip(answers(reader, items), items, strict=True))
    assert right >= 0.97 * len(items)


def test_a_cache_of_float8_reads_as_well() -> None:
    with zipfile.ZipFile(HELDOUT) as archive:
        items = json.loads(archive.read("items.json"))[::20]
    with LLM(READER, device="cpu", kv_cache_config=KvCacheConfig(dtype="fp8")) as reader:
        right = sum(a == item["answer"] for a, item in zip(answers(reader, items), items, strict=True))
    assert right >= 0.95 * len(items), right


@pytest.mark.parametrize("shade", [255, 128, 0])
def test_a_picture_without_text_gives_none(reader: LLM, shade: int) -> None:
    blank = np.full((56, 448, 3), shade, dtype=np.uint8)
    prompt: Any = {"prompt": "What does the picture say?", "multi_modal_data": {"image": [blank]}}
    assert reader.generate(prompt, GREEDY).text == "(nothing)"


def test_the_checkpoint_is_small_and_says_how_it_was_made() -> None:
    assert sum(file.stat().st_size for file in READER.iterdir()) <= 12_000_000
    training = json.loads((READER / "TRAINING.json").read_text())
    assert training["seed"] == 0
    assert (READER / "training.log").read_text().count("\n") > 20
