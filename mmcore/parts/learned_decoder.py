"""Decoders with learned positions: layer norm before each part, biases everywhere, a plain MLP.

Field and tensor names are those of the hub: ``ffn_dim``, ``layers.N.self_attn.out_proj``, ``layers.N.fc1``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from mmcore.adapter import WeightRule
from mmcore.decoder_config import DecoderConfig, LearnedPositions
from mmcore.parts.fields import Json, activation_of
from mmcore.parts.renamed import renamed

_BOTH = ("weight", "bias")
_LAYER = {
    "self_attn.out_proj": "attn.out",
    "self_attn_layer_norm": "attn_norm",
    "fc1": "mlp.up",
    "fc2": "mlp.down",
    "final_layer_norm": "mlp_norm",
}
_CROSS = {
    "encoder_attn.q_proj": "cross.q",
    "encoder_attn.out_proj": "cross.out",
    "encoder_attn_layer_norm": "cross_norm",
}
_NORMS = MappingProxyType({"final_layer_norm": "norm"})


def learned_decoder(text: Json) -> DecoderConfig:
    """From a text config; the head is the embedding."""
    hidden, heads = text["hidden_size"], text["num_attention_heads"]
    length = text["max_position_embeddings"]
    return DecoderConfig(
        vocab_size=text["vocab_size"],
        hidden_size=hidden,
        num_layers=text["num_hidden_layers"],
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=hidden // heads,
        intermediate_size=text["ffn_dim"],
        positions=LearnedPositions(length + 2, offset=2),
        max_length=length,
        norm="layer",
        norm_eps=1e-5,
        activation=activation_of(text["activation_function"]),
        gated=False,
        q_bias=True,
        k_bias=True,
        v_bias=True,
        out_bias=True,
        mlp_bias=True,
        final_norm=not text.get("_remove_final_layer_norm", False),
        tied_head=True,
    )


def crossed_decoder(part: Json) -> DecoderConfig:
    """From the config of two stacks (``decoder_layers``), or of their decoder: it cross-attends states of
    its own width, and its embeddings have a norm."""
    names = {
        "hidden_size": "d_model",
        "num_hidden_layers": "decoder_layers",
        "num_attention_heads": "decoder_attention_heads",
        "ffn_dim": "decoder_ffn_dim",
    }
    plain = learned_decoder({**part, **{name: part[own] for name, own in names.items()}})
    return replace(
        plain,
        embed_scale=math.sqrt(plain.hidden_size) if part["scale_embedding"] else 1.0,
        embed_norm=True,
        cross_attention=True,
        cross_width=plain.hidden_size,
        tied_head=bool(part.get("tie_word_embeddings", True)),
    )


def learned_decoder_rules(
    top: str, *, norms: Mapping[str, str] = _NORMS, cross: bool = False
) -> Iterator[WeightRule]:
    """Rules for tensors ``{top}layers.N.*``, embeddings and ``norms``, which families name differently.

    ``cross`` adds those of cross-attention (``encoder_attn``).
    """
    layer = "layers.{}."
    names = {"embed_tokens": "embedding", "embed_positions": "positions"}
    yield from renamed(top, "decoder.", names, ("weight",))
    yield from renamed(top, "decoder.", norms, _BOTH)
    yield from renamed(top + layer, "decoder." + layer, _LAYER | (_CROSS if cross else {}), _BOTH)
    yield from _fused(f"{top}{layer}self_attn.", f"decoder.{layer}attn.qkv.", "qkv")
    if cross:
        yield from _fused(f"{top}{layer}encoder_attn.", f"decoder.{layer}cross.kv.", "kv")


def _fused(source: str, target: str, shards: str) -> Iterator[WeightRule]:
    for leaf in _BOTH:
        for shard in shards:
            yield WeightRule(f"{source}{shard}_proj.{leaf}", target + leaf, shard)
