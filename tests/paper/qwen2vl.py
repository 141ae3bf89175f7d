"""Qwen2-VL on paper: pictures and video by their own size, positions on three axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from paper.toys import ToyEncoder, ToyInputs, placeholder, plain_decoding, template, toy_decoder

from mmcore.adapter import Adapter, CheckpointFiles, Layout
from mmcore.decoder_config import Rope
from mmcore.request import ItemPlan, MediaInfo, Rows, SourceSpec, TokenPositions


@dataclass(frozen=True)
class Inputs(ToyInputs):
    factor: int = 28
    fps: float = 2.0

    def plan(self, info: MediaInfo) -> ItemPlan:
        tall, wide = max(1, round(info.height / self.factor)), max(1, round(info.width / self.factor))
        kept = max(2, min(info.frames, round(info.seconds * self.fps))) // 2 * 2 if info.frames else 1
        frames = tuple(i * info.frames // kept for i in range(kept)) if info.frames else ()
        steps, times = (kept + 1) // 2, (2 * info.seconds / kept,) if info.frames else ()
        rows = steps * tall * wide
        return ItemPlan((Rows(rows),), rows, 8, (steps, tall, wide), times, SourceSpec(frames=frames))


def positions(layout: Layout) -> TokenPositions:
    parts, end, at = [], 0, 0
    for r in layout.ranges:
        plan = layout.plans[r.item]
        text = end + np.tile(np.arange(r.offset - at), (3, 1))
        grid = end + r.offset - at + np.indices(plan.geometry).reshape(3, -1)
        parts += [text, grid]
        end, at = int(grid.max()) + 1, r.offset + r.length
    parts.append(end + np.tile(np.arange(layout.num_tokens - at), (3, 1)))
    return TokenPositions(np.concatenate(parts, axis=1).astype(np.int32), delta=end - at)


def from_config(config: Mapping[str, Any], files: CheckpointFiles) -> Adapter:
    return Adapter(
        name="qwen2vl",
        prompt=template(files, {"image": "<|image_pad|>", "video": "<|video_pad|>"}),
        inputs=Inputs(modalities=("image", "video")),
        encoder=ToyEncoder("vit"),
        decoding=plain_decoding(files),
        decoder=toy_decoder(files.tokenizer.vocab_size, positions=Rope(sections=(2, 1, 1))),
        placeholders=(
            placeholder(files, "image", "<|image_pad|>"),
            placeholder(files, "video", "<|video_pad|>"),
        ),
        positions=positions,
        weights=(),
    )
