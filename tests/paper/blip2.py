"""BLIP-2 on paper: one tower, two decoder rows. OPT takes the rows in its prompt, T5 through its encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paper.toys import ToyEncoder, ToyInputs, placeholder, plain_decoding, template, toy_decoder

from mmcore.adapter import Adapter, CheckpointFiles, Fusion
from mmcore.decoder_config import LearnedPositions, RelativeBias
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

    def build(self) -> Any:
        return lambda rows, text_ids: [hash((state, *rows, *text_ids)) for state in (*rows, *text_ids)]


def from_config(config: Mapping[str, Any], files: CheckpointFiles) -> Adapter:
    t5, vocabulary = config["text_config"]["model_type"] == "t5", files.tokenizer.vocab_size
    opt_row = toy_decoder(vocabulary, positions=LearnedPositions(512, offset=2))
    t5_row = toy_decoder(vocabulary, positions=RelativeBias(32, 128), cross_attention=True, cross_width=8)
    return Adapter(
        name="blip2",
        prompt=template(files, {"image": "<image>"}, start="" if t5 else "</s>", end="</s>" if t5 else ""),
        inputs=Inputs(config["num_query_tokens"], in_prompt=not t5),
        encoder=ToyEncoder("eva"),
        decoding=plain_decoding(files, start=("<pad>",) if t5 else ()),
        decoder=t5_row if t5 else opt_row,
        fusion=Fusion.CROSS_ATTENTION if t5 else Fusion.INTERLEAVED,
        context=T5Encoder() if t5 else None,
        placeholders=(placeholder(files, "image", "<image>"),),
        weights=(),
    )
