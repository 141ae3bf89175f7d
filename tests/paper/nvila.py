"""NVILA-Lite on paper: one picture alone is cut into tiles, each followed by an ordinary newline token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paper.toys import ToyEncoder, ToyInputs, placeholder, plain_decoding, template, toy_decoder

from mmcore.adapter import Adapter, CheckpointFiles
from mmcore.request import ItemPlan, MediaInfo, Rows, SourceSpec, Tokens


@dataclass(frozen=True)
class Inputs(ToyInputs):
    max_tiles: int
    newline: tuple[int, ...]
    rows: int = 4

    def measure(self, infos: Sequence[MediaInfo], options: Sequence[Inputs]) -> tuple[ItemPlan, ...]:
        return tuple(own.plan(info, alone=len(infos) == 1) for own, info in zip(options, infos, strict=True))

    def plan(self, info: MediaInfo, alone: bool) -> ItemPlan:
        grids = [(i, j) for i in range(1, 13) for j in range(1, 13) if i * j <= self.max_tiles]
        tall, wide = (
            min(grids, key=lambda g: abs(g[0] / g[1] - info.height / info.width)) if alone else (1, 1)
        )
        tiles = info.frames or tall * wide + (tall * wide > 1)  # and a thumbnail
        pieces = (Rows(self.rows), Tokens(self.newline)) * tiles
        return ItemPlan(
            pieces, self.rows * tiles, 8, (tall, wide), source=SourceSpec(frames=(*range(info.frames),))
        )


def from_config(config: Mapping[str, Any], files: CheckpointFiles) -> Adapter:
    newline = files.tokenizer.encode("\n", special_tokens=False)
    return Adapter(
        name="nvila",
        prompt=template(files, {"image": "<image>", "video": "<video>"}),
        inputs=Inputs(config["max_tiles"], newline, modalities=("image", "video")),
        encoder=ToyEncoder("siglip"),
        decoding=plain_decoding(files),
        decoder=toy_decoder(
            files.tokenizer.token_id("<image>") or 0
        ),  # both placeholders lie beyond the embedding
        placeholders=(placeholder(files, "image", "<image>"), placeholder(files, "video", "<video>")),
        weights=(),
    )
