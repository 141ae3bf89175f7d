"""Builds one training row of a kind: pictures, chat, answer; packed as bytes for the GPU's pools."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np
from chat import Part, Turn, build_row, pack
from kinds import Kind
from prompts import (
    DEFAULT_SYSTEM,
    GREETING,
    HELLOS,
    NO_PICTURE,
    NOTHING,
    both_question,
    one_of_question,
    plain_variation,
    reading_question,
    system_text,
)
from render import Drawing, FontBook, blank, draw_page
from text import TextSource


@dataclass(frozen=True)
class RowBuilder:
    """Draws rows of any kind from one text source, one font book and easy-vqa's training questions."""

    source: TextSource
    fonts: FontBook
    questions: list[tuple[str, str, int]]
    by_picture: dict[int, list[tuple[str, str]]]

    def entry(self, rng: Random, kind: Kind) -> np.ndarray:
        """uint8 [entry_bytes]: ids, targets (int16), axes, then aux and masks, or the picture number."""
        while True:
            pictures, number, turns = self._content(rng, kind)
            tries = (system_text(rng), system_text(rng), DEFAULT_SYSTEM, None)
            rows = (pack(build_row(system, turns), kind.length) for system in tries)
            packed = next((row for row in rows if row is not None), None)
            if packed is not None:
                break
        ids, axes, targets = packed
        parts = [ids.view(np.uint8), targets.view(np.uint8), axes.reshape(-1)]
        if kind.vqa:
            parts.append(np.array([number], np.int32).view(np.uint8))
        parts += [p.aux.reshape(-1) for p in pictures] + [p.mask.reshape(-1) for p in pictures]
        return np.concatenate(parts)

    def _content(self, rng: Random, kind: Kind) -> tuple[list[Drawing], int, list[Turn]]:
        if kind.vqa:
            number, turns = self._vqa(rng, kind)
            return [], number, turns
        if not kind.shapes:
            return [], 0, [_text_turn(rng)]
        pictures = [self._drawing(rng, shape, kind) for shape in kind.shapes]
        answers = [p.text or NOTHING for p in pictures]
        if len(pictures) == 2:
            return pictures, 0, _pair_turns(rng, kind, answers)
        turns = [_picture_turn(rng, kind.shapes[0], reading_question(rng), answers[0])]
        for _ in range(kind.turns - 1):
            turns.append(Turn((reading_question(rng),), answers[0]))
        return pictures, 0, turns

    def _drawing(self, rng: Random, shape: tuple[int, int], kind: Kind) -> Drawing:
        if rng.random() < 0.025:
            return blank(*shape)
        lines = 1
        if shape[0] >= 112 and shape[1] >= 224 and rng.random() < 0.3:
            lines = rng.randint(2, 3 if shape[0] > 112 else 2)
        limit = 24 if lines == 1 and len(kind.shapes) == 1 else 20 if lines == 1 else 14
        return draw_page(rng, self.fonts, self.source, shape, lines=lines, max_chars=limit)

    def _vqa(self, rng: Random, kind: Kind) -> tuple[int, list[Turn]]:
        question, answer, number = rng.choice(self.questions)
        if rng.random() < 0.015:
            question, answer = reading_question(rng), NOTHING
        turns = [_picture_turn(rng, (56, 56), plain_variation(rng, question), answer)]
        for _ in range(kind.turns - 1):
            question, answer = rng.choice(self.by_picture[number])
            turns.append(Turn((plain_variation(rng, question),), answer))
        return number, turns


def _picture_turn(rng: Random, shape: tuple[int, int], question: str, answer: str) -> Turn:
    roll = rng.random()
    parts: tuple[Part, ...] = (shape, question)
    if roll < 0.08:
        parts = (shape, "\n" + question)
    elif roll < 0.42:
        parts = (question, shape)
    elif roll < 0.46:
        parts = (question + "\n", shape)
    elif roll < 0.48:
        parts = ("Picture 1: ", shape, question)
    return Turn(parts, answer)


def _pair_turns(rng: Random, kind: Kind, answers: list[str]) -> list[Turn]:
    first, second = kind.shapes
    if rng.random() < 0.2:
        return [
            _picture_turn(rng, first, reading_question(rng), answers[0]),
            _picture_turn(rng, second, reading_question(rng), answers[1]),
        ]
    if rng.random() < 0.5:
        question, answer = both_question(rng), "\n".join(answers)
    else:
        which = rng.randrange(2)
        question, answer = one_of_question(rng, which), answers[which]
    forms: tuple[tuple[Part, ...], ...] = (
        (first, second, question),
        (first, second, question),
        (question, first, second),
        (first, question, second),
        (first, "\n", second, "\n" + question),
        ("Picture 1: ", first, "Picture 2: ", second, question),
    )
    return [Turn(rng.choice(forms), answer)]


def _text_turn(rng: Random) -> Turn:
    if rng.random() < 0.6:
        return Turn((rng.choice(HELLOS),), GREETING)
    return Turn((both_question(rng) if rng.random() < 0.2 else reading_question(rng),), NO_PICTURE)
