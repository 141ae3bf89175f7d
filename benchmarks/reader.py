"""How often the embedded reader is exactly right, run through mmcore.

    python benchmarks/reader.py --out benchmarks/results/reader-DATE.json [--easy-vqa FOLDER]

Held-out lines come from the plugin's test data; ``--easy-vqa`` names the folder of the installed package
``easy_vqa`` (PyPI ``easy-vqa`` 1.0), whose own test split is asked as a whole.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mmcore_qwen2vl
import torch

from mmcore import LLM, SamplingParams, __version__

HELDOUT = Path(__file__).parent.parent / "plugins/qwen2vl/tests/data/heldout.zip"
READER = Path(mmcore_qwen2vl.__file__).parent / "reader"
PROMPT = (
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
    "<|vision_start|><|image_pad|><|vision_end|>{question}<|im_end|>\n<|im_start|>assistant\n"
)
GREEDY = SamplingParams(max_tokens=80, temperature=0.0)
CHUNK = 256
"""Requests handed in at once."""


@dataclass(frozen=True, slots=True)
class Item:
    """One question: a raw prompt, its pictures' files, the right answer, and what kind it is."""

    prompt: str
    pictures: tuple[bytes, ...]
    answer: str
    tags: tuple[tuple[str, str], ...]


def heldout_items(path: Path) -> list[Item]:
    with zipfile.ZipFile(path) as archive:
        return [
            Item(
                item["prompt"],
                tuple(archive.read(name) for name in item["images"]),
                item["answer"],
                tuple(sorted(item["tags"].items())),
            )
            for item in json.loads(archive.read("items.json"))
        ]


def easy_vqa_items(folder: Path) -> list[Item]:
    """The test split: [question, answer, picture number] and one PNG a picture."""
    split = folder / "data" / "test"
    questions: list[tuple[str, str, int]] = json.loads((split / "questions.json").read_text())
    pictures = {number: (split / "images" / f"{number}.png").read_bytes() for _, _, number in questions}
    return [
        Item(PROMPT.format(question=question), (pictures[number],), answer, (("answer", answer),))
        for question, answer, number in questions
    ]


def ask(llm: LLM, items: Sequence[Item]) -> list[str]:
    answers: list[str] = []
    for start in range(0, len(items), CHUNK):
        prompts = [
            {"prompt": item.prompt, "multi_modal_data": {"image": list(item.pictures)}}
            for item in items[start : start + CHUNK]
        ]
        answers += [output.text for output in llm.generate(prompts, GREEDY, use_tqdm=False)]
    return answers


def tally(pairs: Iterable[tuple[str, bool]]) -> dict[str, dict[str, float]]:
    """By stratum: how many, how many right, and the share."""
    right: dict[str, list[bool]] = defaultdict(list)
    for stratum, is_right in pairs:
        right[stratum].append(is_right)
    return {
        stratum: {"items": len(found), "right": sum(found), "share": round(sum(found) / len(found), 4)}
        for stratum, found in sorted(right.items())
    }


def measure(llm: LLM, items: Sequence[Item]) -> dict[str, Any]:
    before = time.perf_counter()
    answers = ask(llm, items)
    seconds = time.perf_counter() - before
    right = [answer == item.answer for answer, item in zip(answers, items, strict=True)]
    strata = tally(
        (f"{name}: {value}", ok) for item, ok in zip(items, right, strict=True) for name, value in item.tags
    )
    wrong = [
        {"answer": answer, "right": item.answer}
        for answer, item, ok in zip(answers, items, right, strict=True)
        if not ok
    ]
    whole = tally(("all", ok) for ok in right)["all"]
    return {**whole, "seconds": round(seconds, 1), "strata": strata, "wrong": wrong[:40]}


def environment() -> dict[str, str]:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "commit": commit.stdout.strip() or "unknown",
        "mmcore": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": "cpu",
    }


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--easy-vqa", type=Path)
    options = parser.parse_args(arguments)
    report: dict[str, Any] = {"environment": environment()}
    with LLM(READER, device="cpu", encoder_cache_bytes=64 << 20) as llm:
        report["heldout"] = measure(llm, heldout_items(HELDOUT))
        if options.easy_vqa:
            report["easy_vqa_test"] = measure(llm, easy_vqa_items(options.easy_vqa))
    options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    for name in report.keys() - {"environment"}:
        print(name, {key: report[name][key] for key in ("items", "right", "share", "seconds")})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
