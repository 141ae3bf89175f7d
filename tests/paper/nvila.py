"""NVILA-Lite on paper: one picture alone is cut into tiles, each followed by an ordinary newline token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paper.toys import ToyInputs, token, toy_adapter, toy_decoder

from mmcore.adapter import Adapter, CheckpointFiles
from mmcore.request import ItemPlan, MediaInfo, Rows, SourceSpec, Tokens


@dataclass(frozen=True)
class Inputs(ToyInputs):
    newline: tuple[int, ...]
    max_tiles: int
    rows: int = 4

    def measure(self, infos: Sequence[MediaInfo], options: Sequence[Inputs]) -> tuple[ItemPlan, ...]:
        return tuple(own.plan(info, alone=len(infos) == 1) for own, info in zip(options, infos, strict=True))

    def plan(self, info: MediaInfo, alone: bool) -> ItemPlan:
        tall, wide = self.tiling(info) if alone and not info.frames else (1, 1)
        tiles = info.frames or tall * wide + (tall * wide > 1)  # and a thumbnail
        pieces = (Rows(self.rows), Tokens(self.newline)) * tiles
        source = SourceSpec(frames=tuple(range(info.frames)))
        return ItemPlan(pieces, self.rows * tiles, width=8, geometry=(tall, wide), source=source)

    def tiling(self, info: MediaInfo) -> tuple[int, int]:
        grids = [(i, n // i) for n in range(1, self.max_tiles + 1) for i in range(1, n + 1) if n % i == 0]
        return min(grids, key=lambda grid: abs(grid[0] / grid[1] - info.height / info.width))


def from_config(config: Mapping[str, Any], files: CheckpointFiles) -> Adapter:
    slots = {"image": "<image>", "video": "<video>"}
    newline = files.tokenizer.encode("\n", special_tokens=False)
    inputs = Inputs(newline, config["max_tiles"], modalities=(*slots,))
    beyond = toy_decoder(files, vocab_size=token(files, "<image>"))  # no placeholder id has an embedding
    return toy_adapter("nvila", files, inputs, slots, decoder=beyond)
