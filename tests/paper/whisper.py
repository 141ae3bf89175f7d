"""Whisper on paper: rows are cross-attended, outside the prompt; long sound is a chain of windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paper.toys import ToyInputs, stops, token, toy_adapter, toy_decoder
from paper.whisper_chain import WINDOW, Decoding

from mmcore.adapter import Adapter, CheckpointFiles, Fusion
from mmcore.request import ItemPlan, MediaInfo, SourceSpec


@dataclass(frozen=True)
class Inputs(ToyInputs):
    start: int = 0
    rate: int = 16_000

    def plan(self, info: MediaInfo) -> ItemPlan:
        total = info.samples * self.rate // info.sample_rate
        source = SourceSpec(sample_rate=self.rate, start=self.start, stop=min(total, self.start + WINDOW))
        return ItemPlan((), rows=20, width=8, geometry=(self.start, total), source=source)


def from_config(config: Mapping[str, Any], files: CheckpointFiles) -> Adapter:
    decoding = Decoding(stops(files), (token(files, "<start>"),), task=token(files, "<task>"))
    decoder = toy_decoder(files, cross_attention=True, cross_width=8)
    inputs, fusion = Inputs(modalities=("audio",)), Fusion.CROSS_ATTENTION
    return toy_adapter("whisper", files, inputs, {}, decoder=decoder, decoding=decoding, fusion=fusion)
