"""Chats as token ids: one token a byte, eight special tokens, M-RoPE positions, targets.

A row is what the model sees: the chat in Qwen2-VL's form, `<|image_pad|>` repeated once per merged
token, positions on three axes, and for each position the token that must follow it (or -1).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

SPECIALS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
END_OF_TEXT, IM_START, IM_END, VISION_START, VISION_END, VISION_PAD, IMAGE_PAD, VIDEO_PAD = range(256, 264)
VOCAB = 264
IGNORE = -1

Part = str | tuple[int, int]  # text, or a picture's (height, width) in pixels


@dataclass(frozen=True)
class Turn:
    """What a user sends (text and pictures in order) and what the model must answer."""

    parts: tuple[Part, ...]
    answer: str


@dataclass
class Row:
    """Token ids, positions on three axes and targets, growing from left to right."""

    ids: list[int] = field(default_factory=list)
    axes: list[tuple[int, int, int]] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    next_position: int = 0

    def text(self, tokens: Sequence[int]) -> None:
        """Appends tokens that the model is given."""
        start = self.next_position
        self.ids.extend(tokens)
        self.axes.extend((p, p, p) for p in range(start, start + len(tokens)))
        self.targets.extend([IGNORE] * len(tokens))
        self.next_position = start + len(tokens)

    def picture(self, height: int, width: int) -> None:
        """Appends one picture; afterwards the next position is start + the longer side in tokens."""
        rows, cols, start = height // 28, width // 28, self.next_position + 1
        self.text([VISION_START])
        self.ids.extend([IMAGE_PAD] * (rows * cols))
        self.axes.extend((start, start + r, start + c) for r in range(rows) for c in range(cols))
        self.targets.extend([IGNORE] * (rows * cols))
        self.next_position = start + max(rows, cols)
        self.text([VISION_END])

    def answer(self, tokens: Sequence[int]) -> None:
        """Appends tokens that the model must produce after what stands there."""
        at = len(self.ids) - 1
        self.text(tokens)
        self.targets[at : at + len(tokens)] = tokens


@functools.lru_cache(maxsize=100_000)
def encode(text: str) -> tuple[int, ...]:
    """UTF-8 bytes as ids."""
    return tuple(text.encode())


def build_row(system: str | None, turns: Sequence[Turn]) -> Row:
    """The chat in Qwen2-VL's template; `system=None` leaves the system block out altogether."""
    row = Row()
    if system is not None:
        row.text([IM_START, *encode("system\n" + system), IM_END, 10])
    for i, turn in enumerate(turns):
        row.text([IM_START, *encode("user\n")])
        for part in turn.parts:
            if isinstance(part, str):
                row.text(encode(part))
            else:
                row.picture(*part)
        row.text([IM_END, 10, IM_START, *encode("assistant\n")])
        row.answer([*turn.answer.encode(), IM_END])
        if i + 1 < len(turns):
            row.text([10])
    return row


def pack(row: Row, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Right-pads to ids int16 [L], axes uint8 [3, L], targets int16 [L]; None if it is too long."""
    n = len(row.ids)
    if n > length or row.next_position > 256:
        return None
    ids = np.full(length, END_OF_TEXT, np.int16)
    axes = np.zeros((3, length), np.uint8)
    targets = np.full(length, IGNORE, np.int16)
    ids[:n] = row.ids
    axes[:, :n] = np.asarray(row.axes, np.int64).T
    targets[:n] = row.targets
    return ids, axes, targets
