"""Qwen2-VL on paper: pictures and video at their own size, positions on three axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from paper.toys import ToyInputs, toy_adapter, toy_decoder

from mmcore.adapter import Adapter, CheckpointFiles, Layout
from mmcore.decoder_config import Rope
from mmcore.request import ItemPlan, MediaInfo, Rows, SourceSpec, TokenPositions


@dataclass(frozen=True)
class Inputs(ToyInputs):
    factor: int = 28
    fps: float = 2.0

    def plan(self, info: MediaInfo) -> ItemPlan:
        tall, wide = (max(1, round(side / self.factor)) for side in (info.height, info.width))
        kept = max(2, min(info.frames, round(info.seconds * self.fps))) // 2 * 2 if info.frames else 0
        frames = tuple(i * info.frames // kept for i in range(kept))
        times = tuple(frame * info.seconds / info.frames for frame in frames)
        steps = kept // 2 or 1
        rows = steps * tall * wide
        return ItemPlan((Rows(rows),), rows, 8, (steps, tall, wide), times, SourceSpec(frames=frames))


def positions(layout: Layout) -> TokenPositions:
    parts, end, at = [], 0, 0
    for r in layout.ranges:
        text = end + np.tile(np.arange(r.offset - at), (3, 1))
        grid = end + r.offset - at + np.indices(layout.plans[r.item].geometry).reshape(3, -1)
        parts += [text, grid]
        end, at = int(grid.max()) + 1, r.offset + r.length
    parts.append(end + np.tile(np.arange(layout.num_tokens - at), (3, 1)))
    return TokenPositions(np.concatenate(parts, axis=1).astype(np.int32), delta=end - at)


def from_config(config: Mapping[str, Any], files: CheckpointFiles) -> Adapter:
    slots = {"image": "<|image_pad|>", "video": "<|video_pad|>"}
    decoder, inputs = toy_decoder(files, positions=Rope(sections=(2, 1, 1))), Inputs(modalities=(*slots,))
    return toy_adapter("qwen2vl", files, inputs, slots, decoder=decoder, positions=positions)
