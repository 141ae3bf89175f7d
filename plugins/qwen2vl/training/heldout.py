"""Draws the held-out set: texts, words and one font family that training never sees, as image files.

    python heldout.py --data DATA --out heldout.zip

The zip holds `items.json` (a list of items) and the pictures. An item has chat `messages`, the `prompt`
as text, the names of its `images` in order, the `answer`, and `tags` for the strata.
"""

from __future__ import annotations

import argparse
import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from PIL import Image
from prompts import (
    DEFAULT_SYSTEM,
    NOTHING,
    SYSTEMS,
    both_question,
    one_of_question,
    reading_question,
    system_text,
)
from render import Drawing, FontBook, blank, draw_page, load_fonts
from text import TextSource, load_words

SHAPES = ((56, 448), (28, 448), (84, 336), (56, 224), (112, 56), (56, 112), (112, 224), (224, 224))
ODD_SHAPES = ((60, 300), (40, 320), (64, 200), (100, 400), (90, 180), (50, 500), (32, 256), (120, 360))
TEXTS = ("words", "words", "letters", "digits", "pseudo", "codes", "labels", "phrase")
PICTURE = "<|vision_start|><|image_pad|><|vision_end|>"
Content = list[dict[str, Any]]


@dataclass
class Maker:
    """Draws items; keeps the pictures of the zip."""

    rng: Random
    source: TextSource
    seen: FontBook
    unseen: FontBook
    files: dict[str, bytes]

    def drawing(self, shape: tuple[int, int], kind: str, unseen: bool = False, lines: int = 1) -> Drawing:
        """One drawing whose text is long enough to be surely unseen."""
        fonts = self.unseen if unseen else self.seen
        while True:
            made = draw_page(
                self.rng,
                fonts,
                self.source,
                shape,
                kind=kind,
                lines=lines,
                max_chars=24 if lines == 1 else 14,
            )
            if min(len(line) for line in made.text.split("\n")) >= 3:
                return made

    def store(self, drawing: Drawing, jpeg: bool) -> dict[str, Any]:
        """Colours a drawing and stores it; returns the message's picture part."""
        image = Image.fromarray(colour(self.rng, drawing.mask, jpeg))
        memory = io.BytesIO()
        if jpeg:
            image.save(memory, "JPEG", quality=self.rng.randint(40, 95))
        else:
            image.save(memory, "PNG", optimize=True)
        name = f"{len(self.files):04}.{'jpg' if jpeg else 'png'}"
        self.files[name] = memory.getvalue()
        return {"type": "image_url", "image_url": {"url": name}}

    def item(self, turns: list[tuple[Content, str]], tags: dict[str, str], form: str) -> dict[str, Any]:
        """Messages, prompt and answer of a chat whose last turn is asked."""
        messages: list[dict[str, Any]] = []
        system: str | None = DEFAULT_SYSTEM
        if form == "other system":
            system = self.rng.choice(SYSTEMS)
        elif form == "unseen system":
            system = system_text(self.rng, held_out=True)
        if form not in ("default system", "no system block"):
            messages.append({"role": "system", "content": system})
        for content, answer in turns:
            messages += [{"role": "user", "content": content}, {"role": "assistant", "content": answer}]
        answer = messages.pop()["content"]
        images = [
            p["image_url"]["url"]
            for m in messages
            if isinstance(m["content"], list)
            for p in m["content"]
            if p["type"] == "image_url"
        ]
        prompt = render(messages, None if form == "no system block" else system)
        return {
            "messages": messages,
            "prompt": prompt,
            "images": images,
            "answer": answer,
            "tags": tags | {"system": form},
        }


def render(messages: list[dict[str, Any]], system: str | None) -> str:
    """The prompt's text: what Qwen2-VL's template gives, or the same without a system block."""
    text = "" if system is None else f"<|im_start|>system\n{system}<|im_end|>\n"
    for message in messages:
        if message["role"] == "system":
            continue
        content = message["content"]
        body = content if isinstance(content, str) else "".join(p.get("text", PICTURE) for p in content)
        text += f"<|im_start|>{message['role']}\n{body}<|im_end|>\n"
    return text + "<|im_start|>assistant\n"


def colour(rng: Random, mask: np.ndarray, jpeg: bool) -> np.ndarray:
    """Glyph mask -> uint8 [H, W, 3]: two colours at least 90 apart in luminance, some gradient and noise."""
    weights = np.array((0.299, 0.587, 0.114))
    while True:
        back, ink = (np.array([rng.randint(0, 255) for _ in range(3)], float) for _ in range(2))
        if rng.random() < 0.3:
            back, ink = np.full(3, 255.0), np.zeros(3)
        gap = abs(float((back - ink) @ weights))
        if gap >= 90:
            break
    height, width = mask.shape
    field = np.broadcast_to(back, (height, width, 3))
    if rng.random() < 0.25:
        down, across = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
        field = (
            field
            + (0.3 * gap * rng.random() * (across * rng.uniform(-1, 1) + down * rng.uniform(-1, 1)))[
                :, :, None
            ]
        )
    share = mask[:, :, None] / 255.0
    image = field * (1 - share) + ink * share
    if jpeg and rng.random() < 0.3:
        noise = np.random.default_rng(rng.getrandbits(32)).normal(size=image.shape)
        image = image + noise * rng.random() * 0.08 * gap
    return np.asarray(image.round().clip(0, 255), np.uint8)


def ordered(rng: Random, picture: dict[str, Any], question: str) -> tuple[Content, str]:
    """The question before or after the picture, and which of the two."""
    text = {"type": "text", "text": question}
    return ([text, picture], "question first") if rng.random() < 0.4 else ([picture, text], "picture first")


def name_of(shape: tuple[int, int]) -> str:
    """Height x width."""
    return f"{shape[0]}x{shape[1]}"


def form_of(rng: Random) -> str:
    """How the chat begins."""
    return rng.choices(
        ("default system", "no system block", "other system", "unseen system"), (45, 25, 18, 12)
    )[0]


def line_item(maker: Maker, shape: tuple[int, int], kind: str, unseen: bool, stratum: str) -> dict[str, Any]:
    """One line, one picture, one question; a fifth of the wordings are held out too."""
    rng, jpeg = maker.rng, maker.rng.random() < 0.4
    drawn = maker.drawing(shape, kind, unseen)
    wording = rng.random() < 0.2
    content, order = ordered(rng, maker.store(drawn, jpeg), reading_question(rng, wording))
    tags = {
        "set": stratum,
        "text": kind,
        "family": "unseen" if unseen else "seen",
        "font": drawn.family,
        "shape": name_of(shape),
        "order": order,
        "wording": "unseen" if wording else "seen",
        "format": "jpeg" if jpeg else "png",
    }
    return maker.item([(content, drawn.text)], tags, form_of(rng))


def pair_item(maker: Maker) -> dict[str, Any]:
    """Two pictures: both are asked for, or one of them."""
    rng, jpeg = maker.rng, maker.rng.random() < 0.4
    shapes = rng.choice(
        (((56, 224), (56, 224)), ((56, 448), (84, 336)), ((28, 448), (56, 448)), ((56, 448), (56, 448)))
    )
    drawn = []
    for shape in shapes:
        made = maker.drawing(shape, rng.choice(TEXTS))
        while len(made.text) > 20:
            made = maker.drawing(shape, rng.choice(TEXTS))
        drawn.append(made)
    first, second = (maker.store(d, jpeg) for d in drawn)
    which = rng.choice((None, None, 0, 1))
    question = both_question(rng) if which is None else one_of_question(rng, which)
    answer = "\n".join(d.text for d in drawn) if which is None else drawn[which].text
    text = {"type": "text", "text": question}
    content, order = rng.choice(
        (([first, second, text], "pictures first"), ([text, first, second], "question first"))
    )
    tags = {
        "set": "two pictures",
        "asked": "both" if which is None else ("first", "second")[which],
        "order": order,
        "shape": " ".join(map(name_of, shapes)),
        "family": "seen",
        "format": "jpeg" if jpeg else "png",
    }
    return maker.item([(content, answer)], tags, form_of(rng))


def turn_item(maker: Maker) -> dict[str, Any]:
    """The same picture asked about again in a second turn."""
    rng = maker.rng
    drawn = maker.drawing((56, 448), rng.choice(TEXTS))
    content, order = ordered(rng, maker.store(drawn, False), reading_question(rng))
    again: Content = [{"type": "text", "text": reading_question(rng)}]
    tags = {"set": "second turn", "shape": "56x448", "order": order, "family": "seen", "format": "png"}
    return maker.item([(content, drawn.text), (again, drawn.text)], tags, form_of(rng))


def page_item(maker: Maker) -> dict[str, Any]:
    """Two or three lines on a page."""
    rng = maker.rng
    drawn = maker.drawing((224, 224), rng.choice(TEXTS), lines=rng.randint(2, 3))
    content, order = ordered(rng, maker.store(drawn, False), reading_question(rng))
    tags = {"set": "several lines", "shape": "224x224", "order": order, "family": "seen", "format": "png"}
    return maker.item([(content, drawn.text)], tags, form_of(rng))


def empty_item(maker: Maker) -> dict[str, Any]:
    """A picture of one colour: nothing to read."""
    rng, shape = maker.rng, maker.rng.choice(SHAPES)
    content, order = ordered(rng, maker.store(blank(*shape), False), reading_question(rng))
    tags = {"set": "empty", "shape": name_of(shape), "order": order, "family": "none", "format": "png"}
    return maker.item([(content, NOTHING)], tags, form_of(rng))


def make_items(maker: Maker) -> list[dict[str, Any]]:
    """1,000 items."""
    rng = maker.rng
    items = []
    for kind, count in (
        ("words", 200),
        ("letters", 100),
        ("digits", 100),
        ("pseudo", 40),
        ("codes", 40),
        ("labels", 30),
        ("phrase", 30),
    ):
        items += [line_item(maker, SHAPES[i % len(SHAPES)], kind, False, "line") for i in range(count)]
    items += [line_item(maker, SHAPES[i % len(SHAPES)], rng.choice(TEXTS), True, "line") for i in range(200)]
    items += [
        line_item(maker, ODD_SHAPES[i % len(ODD_SHAPES)], rng.choice(TEXTS), False, "resized")
        for i in range(60)
    ]
    for make, count in ((pair_item, 100), (turn_item, 40), (page_item, 40), (empty_item, 20)):
        items += [make(maker) for _ in range(count)]
    return [{"id": i, **item} for i, item in enumerate(items)]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=2026)
    args = parser.parse_args()
    fonts = load_fonts(args.data, False), load_fonts(args.data, True)
    maker = Maker(Random(args.seed), load_words(args.data / "words.txt", True), *fonts, {})
    items = make_items(maker)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(args.out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as bundle:
        contents = {"items.json": json.dumps(items, separators=(",", ":")).encode(), **maker.files}
        for name, content in contents.items():
            entry = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
            bundle.writestr(entry, content, zipfile.ZIP_DEFLATED)
    print(f"{len(items)} items, {len(maker.files)} pictures, {args.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
