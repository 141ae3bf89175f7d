"""Which checkpoint tensor fills which parameter; in folders, names begin with the folder."""

from __future__ import annotations

from mmcore.adapter import IgnoredWeight, WeightRule
from mmcore.parts.fields import Json
from mmcore.parts.rotary_decoder import rotary_buffers, rotary_decoder_rules, tied_twin
from mmcore.parts.vit import SCALED, SPLIT, VitConfig, vit_rules, vit_unused

_TEXT = ("llm.model.",)
_HEAD = "llm.lm_head.weight"
_VISION = tuple(f"vision_tower.{part}" for part in ("vision_model.", "vision_tower.vision_model.", ""))


def weight_rules(vit: VitConfig, *, tied_head: bool) -> tuple[WeightRule, ...]:
    own = [
        WeightRule(f"mm_projector.layers.{{}}.{leaf}", f"encoder.projector.{{}}.{leaf}")
        for leaf in ("weight", "bias")
    ]
    text = rotary_decoder_rules(_TEXT, None if tied_head else _HEAD)
    prefixes, names = (_VISION[-1:], SCALED) if vit.layer_scale else (_VISION, SPLIT)
    return (*text, *vit_rules(prefixes, "encoder.tower", names), *own)


def ignored_weights(vision: Json, vit: VitConfig, *, tied_head: bool) -> tuple[IgnoredWeight, ...]:
    heads = [tied_twin(_HEAD)] if tied_head else []
    return (*rotary_buffers(_TEXT), *vit_unused(_VISION, vision, vit), *heads)
