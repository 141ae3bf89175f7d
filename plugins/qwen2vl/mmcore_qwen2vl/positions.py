"""Multimodal rotary positions (Wang et al. 2024): time, height and width of every token."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mmcore.adapter import Layout
from mmcore.request import TokenPositions


@dataclass(frozen=True, slots=True)
class MRopePositions:
    """Text counts up on all three axes; an item spans a box that starts where the text stood."""

    merge: int

    def __call__(self, layout: Layout) -> TokenPositions:
        values = np.empty((3, layout.num_tokens), np.int32)
        token = position = 0
        for span in layout.ranges:
            text = span.offset - token
            values[:, token : span.offset] = position + np.arange(text)
            position += text
            token = span.offset + span.length
            time, height, width = layout.plans[span.item].geometry
            box = _box(time, height // self.merge, width // self.merge)
            values[:, span.offset : token] = position + box[:, span.row : span.row + span.length]
            position += self._extent(layout.modalities[span.item], layout.plans[span.item].geometry)
        values[:, token:] = position + np.arange(layout.num_tokens - token)
        return TokenPositions(values, position - token)

    def _extent(self, modality: str, grid: tuple[int, ...]) -> int:
        """Positions an item takes. A video takes its longest axis, time included, as Qwen's own code does;
        transformers 5.3 and later leave time out (huggingface/transformers#45381)."""
        time, height, width = grid
        longest = max(height, width) // self.merge
        return max(time, longest) if modality == "video" else longest


def _box(time: int, height: int, width: int) -> NDArray[np.int32]:
    """Coordinates of each cell, int32 [3, time * height * width]."""
    return np.indices((time, height, width), dtype=np.int32).reshape(3, -1)
