"""Multimodal rotary positions (Wang et al. 2024): time, height and width of every token."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mmcore.adapter import Layout
from mmcore.request import ItemPlan, TokenPositions


@dataclass(frozen=True, slots=True)
class MRopePositions:
    """Text counts up on all three axes; an item spans a box that starts where the text stood.

    After an item text goes on at 1 + the largest of all three axes, as Qwen's own code does; transformers 5.3
    and later leave time out (huggingface/transformers#45381).
    """

    merge: int
    tokens_per_second: float = 0.0
    """Positions of a second of video (Qwen2.5-VL); 0: each step of the grid is one."""

    def __call__(self, layout: Layout) -> TokenPositions:
        values = np.empty((3, layout.num_tokens), np.int32)
        token = position = 0
        for span in layout.ranges:
            text = span.offset - token
            values[:, token : span.offset] = position + np.arange(text)
            position += text
            token = span.offset + span.length
            plan = layout.plans[span.item]
            box = _box(plan.geometry, self.merge, self._pace(plan))
            values[:, span.offset : token] = position + box[:, span.row : span.row + span.length]
            position += int(box.max()) + 1
        values[:, token:] = position + np.arange(layout.num_tokens - token)
        return TokenPositions(values, position - token)

    def _pace(self, plan: ItemPlan) -> tuple[float, float] | None:
        """Seconds of a step of the grid, and positions of a second."""
        return (plan.times[0], self.tokens_per_second) if self.tokens_per_second and plan.times else None


@lru_cache(maxsize=32)
def _box(grid: tuple[int, ...], merge: int, pace: tuple[float, float] | None) -> NDArray[np.int32]:
    """Coordinates of each row, int32 [3, rows]. Only the product of time, step and rate is rounded down,
    in float32 as in Qwen's own code."""
    time, height, width = grid
    box = np.indices((time, height // merge, width // merge), np.int32).reshape(3, -1)
    if pace is not None:
        seconds = box[0].astype(np.float32) * np.float32(pace[0])
        box[0] = seconds * np.float32(pace[1])
    box.setflags(write=False)
    return box
