"""BLIP-2 on paper: OPT takes the rows before its BOS, T5's encoder reads them with the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paper.toys import ToyInputs, stops, token, toy_adapter, toy_decoder

from mmcore.adapter import Adapter, CheckpointFiles, Fusion
from mmcore.decoder_config import LearnedPositions, RelativeBias
from mmcore.inputs.decoding import PlainDecoding
from mmcore.inputs.template import PlainTemplate
from mmcore.request import ItemPlan, MediaInfo, Rows


@dataclass(frozen=True)
class Inputs(ToyInputs):
    queries: int
    in_prompt: bool

    def plan(self, info: MediaInfo) -> ItemPlan:
        return ItemPlan((Rows(self.queries),) if self.in_prompt else (), self.queries, width=8)


@dataclass(frozen=True)
class T5Encoder:
    def length(self, plans: Sequence[ItemPlan], text_ids: Sequence[int]) -> int:
        return sum(plan.rows for plan in plans) + len(text_ids)

    def work(self, length: int) -> int:
        return length

    def build(self) -> Any:
        return lambda rows, text_ids: [hash((state, *rows, *text_ids)) for state in (*rows, *text_ids)]


def opt(config: Mapping[str, Any], files: CheckpointFiles) -> Adapter:
    decoder = toy_decoder(files, positions=LearnedPositions(512, offset=2))
    inputs = Inputs(config["num_query_tokens"], in_prompt=True)
    adapter = toy_adapter("blip2", files, inputs, {"image": "<image>"}, decoder=decoder)
    return replace(adapter, prompt=PlainTemplate(adapter.placeholders, prefix="</s>"))


def t5(config: Mapping[str, Any], files: CheckpointFiles) -> Adapter:
    decoder = toy_decoder(files, positions=RelativeBias(32, 128), cross_attention=True, cross_width=8)
    decoding = PlainDecoding(stops(files), decoder_prefix=(token(files, "<pad>"),))
    adapter = toy_adapter("blip2", files, Inputs(config["num_query_tokens"], in_prompt=False), {})
    fusion, context = Fusion.CROSS_ATTENTION, T5Encoder()
    prompt = PlainTemplate(suffix="</s>")
    return replace(adapter, prompt=prompt, decoder=decoder, decoding=decoding, fusion=fusion, context=context)


def from_config(config: Mapping[str, Any], files: CheckpointFiles) -> Adapter:
    return t5(config, files) if config["text_config"]["model_type"] == "t5" else opt(config, files)
