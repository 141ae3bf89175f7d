"""Exact answers by stratum, with transformers' own model and greedy `generate`.

python evaluate.py --reader READER --heldout heldout.zip [--easy-vqa DATA] --report report.json
"""

from __future__ import annotations

import argparse
import inspect
import io
import json
import time
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from chat import END_OF_TEXT, IM_END, IMAGE_PAD
from PIL import Image
from tokenizers import Tokenizer
from vision import patchify, resize_like_processor

STRATA = ("set", "text", "family", "shape", "system", "order", "wording", "format", "asked")
QUESTION = (
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n<|vision_start|>"
    "<|image_pad|><|vision_end|>{question}<|im_end|>\n<|im_start|>assistant\n"
)


@dataclass(frozen=True)
class Prepared:
    """One request: ids with a picture token per merged patch, patches, grids."""

    ids: list[int]
    patches: np.ndarray
    grids: list[list[int]]


@dataclass
class Runner:
    """transformers' Qwen2VLForConditionalGeneration and the shipped tokenizer."""

    model: Any
    tokenizer: Tokenizer

    def prepare(self, prompt: str, pictures: list[np.ndarray]) -> Prepared:
        """Prompt text and uint8 pictures [H, W, 3] (already in the processor's size)."""
        counts = iter([p.shape[0] * p.shape[1] // 784 for p in pictures])
        ids: list[int] = []
        for token in self.tokenizer.encode(prompt, add_special_tokens=False).ids:
            ids += [IMAGE_PAD] * next(counts) if token == IMAGE_PAD else [token]
        grids = [[1, p.shape[0] // 14, p.shape[1] // 14] for p in pictures]
        return Prepared(ids, np.concatenate([patchify(p) for p in pictures]), grids)

    @torch.no_grad()
    def answer(self, batch: list[Prepared], most: int = 64) -> list[str]:
        """Greedy answers of a left-padded batch."""
        length = max(len(p.ids) for p in batch)
        device = self.model.device
        ids = torch.full((len(batch), length), END_OF_TEXT)
        mask = torch.zeros_like(ids)
        for row, p in enumerate(batch):
            ids[row, length - len(p.ids) :] = torch.tensor(p.ids)
            mask[row, length - len(p.ids) :] = 1
        given = {
            "input_ids": ids,
            "attention_mask": mask,
            "pixel_values": torch.from_numpy(np.concatenate([p.patches for p in batch])),
            "image_grid_thw": torch.tensor([g for p in batch for g in p.grids]),
        }
        if "mm_token_type_ids" in inspect.signature(self.model.forward).parameters:
            given["mm_token_type_ids"] = (ids == IMAGE_PAD).int()
        given = {n: t.to(device) for n, t in given.items()}
        out = self.model.generate(
            **given,
            do_sample=False,
            max_new_tokens=most,
            eos_token_id=[IM_END, END_OF_TEXT],
            pad_token_id=END_OF_TEXT,
        )
        return [self.tokenizer.decode(row, skip_special_tokens=True) for row in out[:, length:].tolist()]

    def answers(self, requests: list[Prepared], size: int) -> list[str]:
        """All answers, in the requests' order; batches hold requests of similar length."""
        order = sorted(range(len(requests)), key=lambda i: len(requests[i].ids))
        found: dict[int, str] = {}
        for at in range(0, len(order), size):
            picked = order[at : at + size]
            found |= dict(zip(picked, self.answer([requests[i] for i in picked]), strict=True))
        return [found[i] for i in range(len(requests))]


def load(reader: Path, device: str) -> Runner:
    """The checkpoint in fp32 (from its fp16 weights)."""
    from transformers import Qwen2VLForConditionalGeneration

    family: Any = Qwen2VLForConditionalGeneration
    model = family.from_pretrained(reader, dtype=torch.float32).to(device).eval()
    return Runner(model, Tokenizer.from_file(str(reader / "tokenizer.json")))


def read_items(path: Path) -> Iterator[tuple[dict[str, Any], list[np.ndarray]]]:
    """Items of the held-out zip with their pictures."""
    with zipfile.ZipFile(path) as bundle:
        for item in json.loads(bundle.read("items.json")):
            yield (
                item,
                [resize_like_processor(Image.open(io.BytesIO(bundle.read(n)))) for n in item["images"]],
            )


def by_stratum(items: list[dict[str, Any]], right: list[bool]) -> dict[str, dict[str, list[int]]]:
    """tag -> value -> [exactly right, all]."""
    table: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for item, ok in zip(items, right, strict=True):
        for tag in STRATA:
            if tag in item["tags"]:
                cell = table[tag][item["tags"][tag]]
                cell[0] += ok
                cell[1] += 1
    return {tag: dict(sorted(values.items())) for tag, values in table.items()}


def held_out(runner: Runner, path: Path, size: int, limit: int) -> dict[str, Any]:
    """The held-out set's report."""
    pairs = list(read_items(path))
    if limit:
        pairs = pairs[:: max(1, len(pairs) // limit)]
    items = [item for item, _ in pairs]
    given = runner.answers([runner.prepare(item["prompt"], pictures) for item, pictures in pairs], size)
    right = [a == item["answer"] for a, item in zip(given, items, strict=True)]
    wrong = [
        {"id": item["id"], "answer": item["answer"], "given": a, "tags": item["tags"]}
        for item, a, ok in zip(items, given, right, strict=True)
        if not ok
    ]
    return {"right": sum(right), "all": len(items), "strata": by_stratum(items, right), "wrong": wrong}


def easy_vqa(runner: Runner, data: Path, size: int, limit: int) -> dict[str, Any]:
    """easy-vqa's test split, each question in Qwen's default chat."""
    with np.load(data / "easy_vqa.npz") as stored:
        pictures = stored["test"]
    questions = json.loads((data / "easy_vqa.json").read_text())["test"]
    questions = questions[:: max(1, len(questions) // limit)] if limit else questions
    requests = [runner.prepare(QUESTION.format(question=q), [pictures[i]]) for q, _, i in questions]
    given = runner.answers(requests, size)
    wrong = [[q, a, i, g] for (q, a, i), g in zip(questions, given, strict=True) if a != g]
    return {"right": len(questions) - len(wrong), "all": len(questions), "wrong": wrong}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reader", type=Path, required=True)
    parser.add_argument("--heldout", type=Path)
    parser.add_argument("--easy-vqa", type=Path, help="data folder with easy_vqa.npz")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--limit", type=int, default=0, help="about so many items of each, evenly spread")
    args = parser.parse_args()
    runner, report, began = load(args.reader, args.device), {}, time.time()
    if args.heldout:
        report["heldout"] = held_out(runner, args.heldout, args.batch, args.limit)
    if args.easy_vqa:
        report["easy_vqa"] = easy_vqa(runner, args.easy_vqa, args.batch * 4, args.limit)
    if args.report:
        args.report.write_text(json.dumps(report, indent=1))
    for name, result in report.items():
        print(f"{name}: {result['right']} of {result['all']} ({time.time() - began:.0f} s)")
        for tag, values in result.get("strata", {}).items():
            print(f"  {tag}: " + ", ".join(f"{v} {r}/{n}" for v, (r, n) in values.items()))


if __name__ == "__main__":
    main()
