"""Nougat on paper: a page is cross-attended; an answer whose logits stop moving ends, and its tail is cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paper.toys import Listener, ToyDecoding, ToyEncoder, ToyInputs, ends, template, token, toy_decoder

from mmcore.adapter import Adapter, CheckpointFiles, Fusion, Generation, Tokenizer
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
class Decoding(ToyDecoding):
    tokenizer: Tokenizer = field(kw_only=True, compare=False)

    def stop_rule(self, request: PreparedRequest) -> Listener:
        return Listener(is_flat)

    def finish(self, generation: Generation) -> Result:
        kept = len(generation.ids) - SPAN * is_flat(generation.logits)
        return Result(
            self.tokenizer.decode(generation.ids[:kept]), (("repeats", kept < len(generation.ids)),)
        )


def from_config(config: Mapping[str, Any], files: CheckpointFiles) -> Adapter:
    return Adapter(
        name="nougat",
        prompt=template(files, {}),
        inputs=Inputs(config["rows"]),
        encoder=ToyEncoder("swin"),
        decoding=Decoding(ends(files), (token(files, "<s>"),), tokenizer=files.tokenizer),
        decoder=toy_decoder(files.tokenizer.vocab_size, cross_attention=True, cross_width=8),
        fusion=Fusion.CROSS_ATTENTION,
        placeholders=(),
        weights=(),
    )
