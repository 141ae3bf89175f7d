"""Vision transformers over pictures of one size, as data; `mmcore.model.vision_transformer` builds them.

One row serves the towers that the hub calls CLIP, SigLIP and EVA: they differ in a class token, in norms and
in biases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mmcore.adapter import IgnoredWeight, WeightRule
from mmcore.decoder_config import Activation
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


def vit_config(
    vision: Json,
    *,
    feature_layer: int = -1,
    class_token: bool,
    pre_norm: bool,
    post_norm: bool,
    patch_bias: bool,
) -> VitConfig:
    """From a ``vision_config``. ``feature_layer`` counts hidden states as the hub does: -1 is the output of
    the last block, -2 that of the one before. Raises `CheckpointError` for a missing size.
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
        class_token=class_token,
        pre_norm=pre_norm,
        post_norm=post_norm,
        patch_bias=patch_bias,
    )


def vit_rules(prefixes: Sequence[str], target: str, *, fused: bool = False) -> tuple[WeightRule, ...]:
    """Rules for tensors ``{prefix}encoder.layers.N.*`` and their like; ``target`` is the module's name.

    ``fused`` files hold one ``qkv`` matrix, a ``projection`` and bare tables, as the hub's EVA towers do.
    """
    return tuple(rule for prefix in prefixes for rule in _rules(prefix, target, fused=fused))


def vit_unused(prefixes: Sequence[str], vision: Json, config: VitConfig) -> tuple[IgnoredWeight, ...]:
    """What the file holds beyond ``config``: later blocks, the norm after them, a pooling head."""
    return tuple(ignored for prefix in prefixes for ignored in _unused(prefix, vision, config))


_BLOCK = {
    "layer_norm1": "attn_norm",
    "layer_norm2": "mlp_norm",
    "mlp.fc1": "mlp.up",
    "mlp.fc2": "mlp.down",
}
_FUSED = {"self_attn.qkv": "attn.qkv", "self_attn.projection": "attn.out"}
_SPLIT = {"self_attn.out_proj": "attn.out"}
_SHARDS = {f"self_attn.{shard}_proj": shard for shard in ("q", "k", "v")}
_LEAVES = ("weight", "bias")
_HEAD = ("probe", "attention.in_proj_weight", "attention.in_proj_bias")
_HEAD_LINEARS = ("attention.out_proj", "layernorm", "mlp.fc1", "mlp.fc2")


def _rules(prefix: str, target: str, *, fused: bool) -> Iterator[WeightRule]:
    embeddings, block = prefix + "embeddings.", prefix + "encoder.layers.{}."
    table = "position_embedding" if fused else "position_embedding.weight"
    yield WeightRule(embeddings + "class_embedding", f"{target}.class_token", reshape=True)
    yield WeightRule(embeddings + table, f"{target}.positions", reshape=True)
    yield WeightRule(embeddings + "patch_embedding.weight", f"{target}.patch_embed.weight", reshape=True)
    yield WeightRule(embeddings + "patch_embedding.bias", f"{target}.patch_embed.bias")
    for leaf in _LEAVES:
        yield WeightRule(f"{prefix}pre_layrnorm.{leaf}", f"{target}.pre_norm.{leaf}")
        yield WeightRule(f"{prefix}post_layernorm.{leaf}", f"{target}.post_norm.{leaf}")
        for source, part in (_BLOCK | (_FUSED if fused else _SPLIT)).items():
            yield WeightRule(f"{block}{source}.{leaf}", f"{target}.blocks.{{}}.{part}.{leaf}")
        for source, shard in () if fused else _SHARDS.items():
            yield WeightRule(f"{block}{source}.{leaf}", f"{target}.blocks.{{}}.attn.qkv.{leaf}", shard)


def _unused(prefix: str, vision: Json, config: VitConfig) -> Iterator[IgnoredWeight]:
    yield IgnoredWeight(prefix + "embeddings.position_ids", "positions are counted")
    for layer in range(config.layers, vision["num_hidden_layers"]):
        for source in (*_BLOCK, *_FUSED, *_SPLIT, *_SHARDS):
            for leaf in _LEAVES:
                name = f"{prefix}encoder.layers.{layer}.{source}.{leaf}"
                yield IgnoredWeight(name, "the features come from an earlier block")
    for name in (*_HEAD, *(f"{part}.{leaf}" for part in _HEAD_LINEARS for leaf in _LEAVES)):
        yield IgnoredWeight(f"{prefix}head.{name}", "the rows are not pooled")
    if not config.post_norm:
        for leaf in _LEAVES:
            yield IgnoredWeight(f"{prefix}post_layernorm.{leaf}", "the features come before this norm")
