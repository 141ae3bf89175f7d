"""Nougat on paper: a page is cross-attended; an answer whose logits stop moving ends, and its tail is cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paper.toys import Listener, ToyInputs, stops, token, toy_adapter, toy_decoder

from mmcore.adapter import Adapter, CheckpointFiles, Fusion, Generation, Tokenizer
from mmcore.inputs.decoding import PlainDecoding
from mmcore.request import ItemPlan, MediaInfo, PreparedRequest, Result

SPAN, SPREAD = 3, 0.3


def is_flat(logits: Sequence[float]) -> bool:
    return len(logits) >= SPAN and max(logits[-SPAN:]) - min(logits[-SPAN:]) < SPREAD


@dataclass(frozen=True)
class Inputs(ToyInputs):
    rows: int

    def plan(self, info: MediaInfo) -> ItemPlan:
        return ItemPlan((), self.rows, width=8)


@dataclass(frozen=True)
class Decoding(PlainDecoding):
    tokenizer: Tokenizer = field(kw_only=True)

    def stop_rule(self, request: PreparedRequest) -> Listener:
        return Listener(is_flat)

    def finish(self, generation: Generation) -> Result:
        repeats = is_flat(generation.logits)
        kept = generation.ids[: len(generation.ids) - SPAN * repeats]
        return Result(self.tokenizer.decode(kept), (("repeats", repeats),))


def from_config(config: Mapping[str, Any], files: CheckpointFiles) -> Adapter:
    decoding = Decoding(stops(files), (token(files, "<s>"),), tokenizer=files.tokenizer)
    decoder = toy_decoder(files, cross_attention=True, cross_width=8)
    inputs, fusion = Inputs(config["rows"]), Fusion.CROSS_ATTENTION
    return toy_adapter("nougat", files, inputs, {}, decoder=decoder, decoding=decoding, fusion=fusion)
