"""Whisper on paper: rows are cross-attended, outside the prompt; long sound is a chain of windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paper.toys import ToyEncoder, ToyInputs, ends, template, token, toy_decoder
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
    return Adapter(
        name="whisper",
        prompt=template(files, {}),
        inputs=Inputs(modalities=("audio",)),
        encoder=ToyEncoder("mel"),
        decoding=Decoding(ends(files), (token(files, "<start>"),), task=token(files, "<task>")),
        decoder=toy_decoder(files.tokenizer.vocab_size, cross_attention=True, cross_width=8),
        fusion=Fusion.CROSS_ATTENTION,
        placeholders=(),
        weights=(),
    )
