"""Which checkpoint tensor fills which parameter.

Published files say ``visual.*`` and ``model.layers.*``; others ``model.visual.*`` and
``model.language_model.layers.*``. Both are read.
"""

from __future__ import annotations

from collections.abc import Iterator

from mmcore.adapter import IgnoredWeight, WeightRule

_LAYER = "decoder.layers.{}"
_BLOCK = "encoder.blocks.{}"


def weight_rules(*, tied_head: bool) -> tuple[WeightRule, ...]:
    text = [rule for prefix in ("model.", "model.language_model.") for rule in _text_rules(prefix)]
    vision = [rule for prefix in ("visual.", "model.visual.") for rule in _vision_rules(prefix)]
    head = [] if tied_head else [WeightRule("lm_head.weight", "decoder.head.weight")]
    return (*text, *vision, *head)


def ignored_weights(*, tied_head: bool) -> tuple[IgnoredWeight, ...]:
    table = "rotary frequencies follow from config.json"
    buffers = (
        IgnoredWeight("model.layers.{}.self_attn.rotary_emb.inv_freq", table),
        IgnoredWeight("model.rotary_emb.inv_freq", table),
        IgnoredWeight("visual.rotary_pos_emb.inv_freq", table),
    )
    if not tied_head:
        return buffers
    return (*buffers, IgnoredWeight("lm_head.weight", "the head is the embedding, stored twice"))


def _text_rules(prefix: str) -> Iterator[WeightRule]:
    yield WeightRule(prefix + "embed_tokens.weight", "decoder.embedding.weight")
    yield WeightRule(prefix + "norm.weight", "decoder.norm.weight")
    layer = prefix + "layers.{}"
    yield WeightRule(f"{layer}.input_layernorm.weight", f"{_LAYER}.attn_norm.weight")
    yield WeightRule(f"{layer}.post_attention_layernorm.weight", f"{_LAYER}.mlp_norm.weight")
    for shard in ("q", "k", "v"):
        for leaf in ("weight", "bias"):
            yield WeightRule(f"{layer}.self_attn.{shard}_proj.{leaf}", f"{_LAYER}.attn.qkv.{leaf}", shard)
    yield WeightRule(f"{layer}.self_attn.o_proj.weight", f"{_LAYER}.attn.out.weight")
    for shard in ("gate", "up"):
        yield WeightRule(f"{layer}.mlp.{shard}_proj.weight", f"{_LAYER}.mlp.gate_up.weight", shard)
    yield WeightRule(f"{layer}.mlp.down_proj.weight", f"{_LAYER}.mlp.down.weight")


def _vision_rules(prefix: str) -> Iterator[WeightRule]:
    yield WeightRule(prefix + "patch_embed.proj.weight", "encoder.patch_embed.weight", reshape=True)
    block = prefix + "blocks.{}"
    pairs = {
        f"{block}.norm1": f"{_BLOCK}.attn_norm",
        f"{block}.norm2": f"{_BLOCK}.mlp_norm",
        f"{block}.attn.qkv": f"{_BLOCK}.attn.qkv",
        f"{block}.attn.proj": f"{_BLOCK}.attn.out",
        f"{block}.mlp.fc1": f"{_BLOCK}.mlp.up",
        f"{block}.mlp.fc2": f"{_BLOCK}.mlp.down",
        f"{block}.mlp.down_proj": f"{_BLOCK}.mlp.down",
        prefix + "merger.ln_q": "encoder.merger.norm",
        prefix + "merger.mlp.0": "encoder.merger.up",
        prefix + "merger.mlp.2": "encoder.merger.down",
    }
    for leaf in ("weight", "bias"):
        for source, target in pairs.items():
            yield WeightRule(f"{source}.{leaf}", f"{target}.{leaf}")
        for shard in ("gate", "up"):
            yield WeightRule(f"{block}.mlp.{shard}_proj.{leaf}", f"{_BLOCK}.mlp.gate_up.{leaf}", shard)
