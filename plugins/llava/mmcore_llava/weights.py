"""Which checkpoint tensor fills which parameter: names as published, and as transformers 5 writes them."""

from __future__ import annotations

from mmcore.adapter import IgnoredWeight, WeightRule
from mmcore.parts.fields import Json
from mmcore.parts.rotary_decoder import rotary_buffers, rotary_decoder_rules, tied_twin
from mmcore.parts.vit import VitConfig, vit_rules, vit_unused

_TEXT = ("language_model.model.", "model.language_model.")
_HEADS = ("language_model.lm_head.weight", "lm_head.weight")
_VISION = tuple(f"{top}vision_tower.{part}" for top in ("", "model.") for part in ("vision_model.", ""))
_TOPS = ("", "model.")
_LINEARS = {f"linear_1.{leaf}": f"up.{leaf}" for leaf in ("weight", "bias")}
_LINEARS |= {f"linear_2.{leaf}": f"down.{leaf}" for leaf in ("weight", "bias")}
_OWN = {f"multi_modal_projector.{name}": target for name, target in _LINEARS.items()}
_OWN["image_newline"] = "newline"


def weight_rules(*, tied_head: bool) -> tuple[WeightRule, ...]:
    heads = () if tied_head else tuple(WeightRule(name, "decoder.head.weight") for name in _HEADS)
    own = [WeightRule(top + name, f"encoder.{target}") for top in _TOPS for name, target in _OWN.items()]
    return (*rotary_decoder_rules(_TEXT, None), *heads, *vit_rules(_VISION, "encoder.tower"), *own)


def ignored_weights(vision: Json, vit: VitConfig, *, tied_head: bool) -> tuple[IgnoredWeight, ...]:
    heads = [tied_twin(name) for name in _HEADS] if tied_head else []
    return (*rotary_buffers(_TEXT), *vit_unused(_VISION, vision, vit), *heads)
