"""LLaVA-NeXT on paper: the best of several tilings, and a learned newline row after each line of patches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paper.toys import ToyInputs, toy_adapter

from mmcore.adapter import Adapter, CheckpointFiles
from mmcore.request import ItemPlan, MediaInfo, Rows


@dataclass(frozen=True)
class Inputs(ToyInputs):
    side: int
    """Patches along a tile."""
    tilings: tuple[tuple[int, int], ...]

    def plan(self, info: MediaInfo) -> ItemPlan:
        tall, wide = min(self.tilings, key=lambda t: abs(t[0] * info.width - t[1] * info.height))
        height = min(tall * self.side, round(wide * self.side * info.height / info.width) or 1)
        width = min(wide * self.side, round(tall * self.side * info.width / info.height) or 1)
        rows = self.side**2 + height * (width + 1)
        return ItemPlan((Rows(rows),), rows, width=8, geometry=(tall, wide, height, width))


def from_config(config: Mapping[str, Any], files: CheckpointFiles) -> Adapter:
    inputs = Inputs(side=config["side"], tilings=tuple(map(tuple, config["tilings"])))
    return toy_adapter("llava", files, inputs, {"image": "<image>"})
