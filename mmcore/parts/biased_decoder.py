"""Decoders with relative position bias and cross-attention, and their encoder: RMS norm, gated MLP.

Field and tensor names are those of the hub: ``d_model``, ``block.N.layer.0.SelfAttention.q``.
"""

from __future__ import annotations

from collections.abc import Iterator

from mmcore.adapter import WeightRule
from mmcore.decoder_config import DecoderConfig, RelativeBias
from mmcore.errors import UnsupportedOptionError
from mmcore.parts.fields import Json, activation_of


def biased_decoder(text: Json, *, tied_head: bool) -> DecoderConfig:
    """From a text config. A file that says the head is not tied means: what goes into it is not scaled.

    Raises `UnsupportedOptionError` for a plain MLP.
    """
    scaled = text.get("scale_decoder_outputs", text.get("tie_word_embeddings") is not False)
    width, layers = text["d_model"], text.get("num_decoder_layers")
    return DecoderConfig(
        vocab_size=text["vocab_size"],
        hidden_size=width,
        num_layers=text["num_layers"] if layers is None else layers,
        num_heads=text["num_heads"],
        num_kv_heads=text["num_heads"],
        head_dim=text["d_kv"],
        intermediate_size=text["d_ff"],
        positions=RelativeBias(
            text["relative_attention_num_buckets"], text["relative_attention_max_distance"]
        ),
        max_length=text["n_positions"],
        norm_eps=text["layer_norm_epsilon"],
        activation=activation_of(_activation(text)),
        attention_scale=1.0,
        cross_attention=True,
        cross_width=width,
        tied_head=tied_head,
        head_scale=width**-0.5 if scaled else 1.0,
    )


def _activation(text: Json) -> str:
    """``dense_act_fn`` overrides: "gelu" after the gate is the tanh form."""
    if not text["feed_forward_proj"].startswith("gated-"):
        raise UnsupportedOptionError("config.json: MLPs that are not gated (feed_forward_proj) are not built")
    name = text["feed_forward_proj"].removeprefix("gated-")
    return str(text.get("dense_act_fn") or ("gelu_new" if name == "gelu" else name))


def biased_rules(top: str) -> Iterator[WeightRule]:
    """Rules for ``{top}encoder.block.N.*`` and ``{top}decoder.block.N.*``, without embedding and head.

    The encoder is the context stage, a `BiasedEncoder`.
    """
    parts = (("encoder", "context.", "bias", "blocks"), ("decoder", "decoder.", "relative_bias", "layers"))
    for name, target, bias, layers in parts:
        block, into = f"{top}{name}.block.{{}}.layer.", f"{target}{layers}.{{}}."
        yield WeightRule(
            f"{top}{name}.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
            f"{target}{bias}.weight",
        )
        yield WeightRule(f"{top}{name}.final_layer_norm.weight", f"{target}norm.weight")
        yield from _attention(f"{block}0.", "SelfAttention", into, "attn", "qkv")
        if name == "decoder":
            yield from _attention(f"{block}1.", "EncDecAttention", into, "cross", "kv")
        last = f"{block}{1 if name == 'encoder' else 2}."
        yield WeightRule(f"{last}layer_norm.weight", f"{into}mlp_norm.weight")
        yield WeightRule(f"{last}DenseReluDense.wi_0.weight", f"{into}mlp.gate_up.weight", "gate")
        yield WeightRule(f"{last}DenseReluDense.wi_1.weight", f"{into}mlp.gate_up.weight", "up")
        yield WeightRule(f"{last}DenseReluDense.wo.weight", f"{into}mlp.down.weight")


def _attention(source: str, name: str, target: str, part: str, fused: str) -> Iterator[WeightRule]:
    yield WeightRule(f"{source}layer_norm.weight", f"{target}{part}_norm.weight")
    yield WeightRule(f"{source}{name}.o.weight", f"{target}{part}.out.weight")
    for shard in "qkv":
        into = f"{part}.{fused}" if shard in fused else f"{part}.{shard}"
        yield WeightRule(
            f"{source}{name}.{shard}.weight", f"{target}{into}.weight", shard if shard in fused else ""
        )
