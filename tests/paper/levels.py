"""Two feature levels and an uncut item on paper: rows wider than the hidden state, a picture in one chunk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paper.toys import ToyInputs, toy_adapter, toy_decoder

from mmcore.adapter import Adapter, CheckpointFiles
from mmcore.request import ItemPlan, MediaInfo, Rows


@dataclass(frozen=True)
class Inputs(ToyInputs):
    width: int
    patch: int = 16

    def plan(self, info: MediaInfo) -> ItemPlan:
        tall, wide = -(-info.height // self.patch), -(-info.width // self.patch)
        return ItemPlan((Rows(tall * wide),), tall * wide, self.width, (tall, wide), atomic=True)


def from_config(config: Mapping[str, Any], files: CheckpointFiles) -> Adapter:
    decoder = toy_decoder(files, feature_levels=config["levels"])
    inputs = Inputs(width=decoder.hidden_size * (1 + decoder.feature_levels))
    return toy_adapter("levels", files, inputs, {"image": "<image>"}, decoder=decoder)
