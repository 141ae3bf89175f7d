"""Which checkpoint tensor fills which parameter.

Published files say ``visual.*`` and ``model.layers.*``; others ``model.visual.*`` and
``model.language_model.layers.*``. Both are read.
"""

from __future__ import annotations

from collections.abc import Iterator

from mmcore.adapter import IgnoredWeight, WeightRule
from mmcore.parts.rotary_decoder import rotary_buffers, rotary_decoder_rules, tied_twin

_TEXT = ("model.", "model.language_model.")
_BLOCK = "encoder.blocks.{}"


def weight_rules(*, tied_head: bool, gated_tower: bool) -> tuple[WeightRule, ...]:
    text = rotary_decoder_rules(_TEXT, None if tied_head else "lm_head.weight")
    vision = [
        rule for prefix in ("visual.", "model.visual.") for rule in _vision_rules(prefix, gated=gated_tower)
    ]
    return (*text, *vision)


def ignored_weights(*, tied_head: bool) -> tuple[IgnoredWeight, ...]:
    table = "rotary frequencies follow from config.json"
    buffers = (*rotary_buffers(_TEXT), IgnoredWeight("visual.rotary_pos_emb.inv_freq", table))
    if not tied_head:
        return buffers
    return (*buffers, tied_twin("lm_head.weight"))


def _vision_rules(prefix: str, *, gated: bool) -> Iterator[WeightRule]:
    yield WeightRule(prefix + "patch_embed.proj.weight", "encoder.patch_embed.weight", reshape=True)
    block = prefix + "blocks.{}"
    pairs = {
        f"{block}.norm1": f"{_BLOCK}.attn_norm",
        f"{block}.norm2": f"{_BLOCK}.mlp_norm",
        f"{block}.attn.qkv": f"{_BLOCK}.attn.qkv",
        f"{block}.attn.proj": f"{_BLOCK}.attn.out",
        prefix + "merger.ln_q": "encoder.merger.norm",
        prefix + "merger.mlp.0": "encoder.merger.up",
        prefix + "merger.mlp.2": "encoder.merger.down",
    }
    plain = {f"{block}.mlp.fc1": f"{_BLOCK}.mlp.up", f"{block}.mlp.fc2": f"{_BLOCK}.mlp.down"}
    pairs |= {f"{block}.mlp.down_proj": f"{_BLOCK}.mlp.down"} if gated else plain
    for leaf in ("weight", "bias"):
        for source, target in pairs.items():
            yield WeightRule(f"{source}.{leaf}", f"{target}.{leaf}")
        for shard in ("gate", "up") if gated else ():
            yield WeightRule(f"{block}.mlp.{shard}_proj.{leaf}", f"{_BLOCK}.mlp.gate_up.{leaf}", shard)
