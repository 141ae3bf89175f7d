"""Vision transformers over pictures of one size, as data; `mmcore.model.vision_transformer` builds them.

One row serves the towers that the hub calls CLIP, SigLIP, EVA and InternViT: they differ in a class token, in
norms, in biases and in how much a block adds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mmcore.adapter import IgnoredWeight, WeightRule
from mmcore.decoder_config import Activation, Norm
from mmcore.parts.fields import Json, activation_of, need


@dataclass(frozen=True, slots=True, kw_only=True)
class VitConfig:
    """Sizes count elements; ``side`` counts patches along a picture, ``layers`` the blocks that are built."""

    width: int
    layers: int
    heads: int
    intermediate: int
    patch: int
    side: int
    activation: Activation
    norm_eps: float
    class_token: bool = False
    pre_norm: bool = False
    """A norm before the first block."""
    post_norm: bool = False
    """A norm after the last block."""
    patch_bias: bool = True
    norm: Norm = "layer"
    qkv_bias: bool = True
    qk_norm: bool = False
    """An RMS norm of the queries and one of the keys, over all heads together."""
    layer_scale: bool = False
    """What a block adds is scaled, each channel by itself."""

    @property
    def patches(self) -> int:
        return self.side**2

    @property
    def tokens(self) -> int:
        """Rows of one picture: its patches, behind the class token if there is one."""
        return self.patches + self.class_token

    @property
    def patch_values(self) -> int:
        return 3 * self.patch**2

    def work(self, pictures: int = 1) -> int:
        """Floating point operations of the tower for so many pictures."""
        linear = 4 * self.width**2 + 2 * self.width * self.intermediate
        block = self.tokens * (linear + 2 * self.width * self.tokens)
        return 2 * pictures * (self.layers * block + self.patches * self.patch_values * self.width)


def vit_config(vision: Json, *, feature_layer: int = -1, **form: Any) -> VitConfig:
    """From a ``vision_config``; ``form`` holds the fields of `VitConfig` that are the architecture's.

    ``feature_layer`` counts hidden states as the hub does: -1 is the output of the last block, -2 that of the
    one before. Raises `CheckpointError` for a missing size.
    """
    total, width = need(vision, "num_hidden_layers"), need(vision, "hidden_size")
    return VitConfig(
        width=width,
        layers=total + 1 + feature_layer if feature_layer < 0 else feature_layer,
        heads=need(vision, "num_attention_heads"),
        intermediate=need(vision, "intermediate_size"),
        patch=need(vision, "patch_size"),
        side=need(vision, "image_size") // need(vision, "patch_size"),
        activation=activation_of(need(vision, "hidden_act")),
        norm_eps=need(vision, "layer_norm_eps"),
        **form,
    )


@dataclass(frozen=True, slots=True)
class VitNames:
    """What files call the parts of a block, and the table of positions."""

    parts: Mapping[str, str]
    """Modules with a weight and perhaps a bias: to the module here."""
    positions: str
    shards: Mapping[str, str] = field(default_factory=dict)
    """Matrices that are stored apart: to the part of ``qkv``."""
    bare: Mapping[str, str] = field(default_factory=dict)


_MLP = {"mlp.fc1": "mlp.up", "mlp.fc2": "mlp.down"}
_NORMS = {"layer_norm1": "attn_norm", "layer_norm2": "mlp_norm"}
SPLIT = VitNames(
    parts=_NORMS | _MLP | {"self_attn.out_proj": "attn.out"},
    positions="position_embedding.weight",
    shards={f"self_attn.{shard}_proj": shard for shard in "qkv"},
)
"""CLIP and SigLIP."""
FUSED = VitNames(
    parts=_NORMS | _MLP | {"self_attn.qkv": "attn.qkv", "self_attn.projection": "attn.out"},
    positions="position_embedding",
)
"""EVA."""
SCALED = VitNames(
    parts=_MLP
    | {"norm1": "attn_norm", "norm2": "mlp_norm", "attn.qkv": "attn.qkv", "attn.proj": "attn.out"}
    | {"attn.q_norm": "attn.q_norm", "attn.k_norm": "attn.k_norm"},
    positions="position_embedding",
    bare={"ls1": "attn_scale", "ls2": "mlp_scale"},
)
"""InternViT, as its authors store it."""


def vit_rules(prefixes: Sequence[str], target: str, names: VitNames = SPLIT) -> tuple[WeightRule, ...]:
    """Rules for tensors ``{prefix}encoder.layers.N.*`` and their like; ``target`` is the module's name."""
    return tuple(rule for prefix in prefixes for rule in _rules(prefix, target, names))


def vit_unused(prefixes: Sequence[str], vision: Json, config: VitConfig) -> tuple[IgnoredWeight, ...]:
    """What the file holds beyond ``config``: later blocks, the norm after them, a pooling head."""
    return tuple(ignored for prefix in prefixes for ignored in _unused(prefix, vision, config))


_LEAVES = ("weight", "bias")
_HEAD = ("probe", "attention.in_proj_weight", "attention.in_proj_bias")
_HEAD_LINEARS = ("attention.out_proj", "layernorm", "mlp.fc1", "mlp.fc2")


def _rules(prefix: str, target: str, names: VitNames) -> Iterator[WeightRule]:
    embeddings, block, into = prefix + "embeddings.", prefix + "encoder.layers.{}.", f"{target}.blocks.{{}}."
    yield WeightRule(embeddings + "class_embedding", f"{target}.class_token", reshape=True)
    yield WeightRule(embeddings + names.positions, f"{target}.positions", reshape=True)
    yield WeightRule(embeddings + "patch_embedding.weight", f"{target}.patch_embed.weight", reshape=True)
    yield WeightRule(embeddings + "patch_embedding.bias", f"{target}.patch_embed.bias")
    for leaf in _LEAVES:
        yield WeightRule(f"{prefix}pre_layrnorm.{leaf}", f"{target}.pre_norm.{leaf}")
        yield WeightRule(f"{prefix}post_layernorm.{leaf}", f"{target}.post_norm.{leaf}")
        for source, part in names.parts.items():
            yield WeightRule(f"{block}{source}.{leaf}", f"{into}{part}.{leaf}")
        for source, shard in names.shards.items():
            yield WeightRule(f"{block}{source}.{leaf}", f"{into}attn.qkv.{leaf}", shard)
    for source, part in names.bare.items():
        yield WeightRule(block + source, into + part)


def _unused(prefix: str, vision: Json, config: VitConfig) -> Iterator[IgnoredWeight]:
    yield IgnoredWeight(prefix + "embeddings.position_ids", "positions are counted")
    for layer in range(config.layers, vision["num_hidden_layers"]):
        for name in dict.fromkeys(name for names in (SPLIT, FUSED, SCALED) for name in _tensors(names)):
            block = f"{prefix}encoder.layers.{layer}."
            yield IgnoredWeight(block + name, "the features come from an earlier block")
    for name in (*_HEAD, *(f"{part}.{leaf}" for part in _HEAD_LINEARS for leaf in _LEAVES)):
        yield IgnoredWeight(f"{prefix}head.{name}", "the rows are not pooled")
    if not config.post_norm:
        for leaf in _LEAVES:
            yield IgnoredWeight(f"{prefix}post_layernorm.{leaf}", "the features come before this norm")


def _tensors(names: VitNames) -> Iterator[str]:
    """All of one block."""
    yield from (f"{source}.{leaf}" for source in (*names.parts, *names.shards) for leaf in _LEAVES)
    yield from names.bare
