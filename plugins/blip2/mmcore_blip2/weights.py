"""Which checkpoint tensor fills which parameter."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from mmcore.adapter import IgnoredWeight, WeightRule
from mmcore.parts.vit import vit_rules

_BOTH = ("weight", "bias")
_TABLES = tuple(
    f"language_model.{part}.weight" for part in ("shared", "decoder.embed_tokens", "encoder.embed_tokens")
)
HEAD = "language_model.lm_head.weight"

_QFORMER = {
    "intermediate_query.dense": "mlp.up",
    "output_query.dense": "mlp.down",
    "output_query.LayerNorm": "norm",
}
_OPT = {
    "self_attn.out_proj": "attn.out",
    "self_attn_layer_norm": "attn_norm",
    "fc1": "mlp.up",
    "fc2": "mlp.down",
    "final_layer_norm": "mlp_norm",
}


def encoder_rules() -> Iterator[WeightRule]:
    yield from vit_rules(("vision_model.",), "encoder.tower", fused=True)
    yield WeightRule("query_tokens", "encoder.queries", reshape=True)
    source, target = "qformer.encoder.layer.{}", "encoder.layers.{}"
    yield from _rules(
        "", "encoder.", {"qformer.layernorm": "norm", "language_projection": "projection"}, _BOTH
    )
    yield from _rules(f"{source}.", f"{target}.", _QFORMER, _BOTH)
    for name, part in (("attention", "attn"), ("crossattention", "cross")):
        own = {"attention.query": "q", "output.dense": "out", "output.LayerNorm": "norm"}
        yield from _rules(f"{source}.{name}.", f"{target}.{part}.", own, _BOTH)
        for leaf in _BOTH:
            for shard, long in (("k", "key"), ("v", "value")):
                yield WeightRule(
                    f"{source}.{name}.attention.{long}.{leaf}", f"{target}.{part}.kv.{leaf}", shard
                )


def opt_rules() -> Iterator[WeightRule]:
    top, layer = "language_model.model.decoder.", "layers.{}."
    names = {"embed_tokens": "embedding", "embed_positions": "positions"}
    yield from _rules(top, "decoder.", names, ("weight",))
    yield from _rules(top, "decoder.", {"final_layer_norm": "norm"}, _BOTH)
    yield from _rules(top + layer, "decoder." + layer, _OPT, _BOTH)
    for leaf in _BOTH:
        for shard in "qkv":
            source = f"{top}{layer}self_attn.{shard}_proj.{leaf}"
            yield WeightRule(source, f"decoder.{layer}attn.qkv.{leaf}", shard)


def t5_rules(stored: Collection[str], *, tied_head: bool) -> Iterator[WeightRule]:
    """``stored`` names tensors of the file, as far as they are known."""
    yield WeightRule(_table(stored), "decoder.embedding.weight")
    if not tied_head:
        yield WeightRule(HEAD, "decoder.head.weight")
    parts = (("encoder", "context.", "bias", "blocks"), ("decoder", "decoder.", "relative_bias", "layers"))
    for name, target, bias, layers in parts:
        block, into = f"language_model.{name}.block.{{}}.layer.", f"{target}{layers}.{{}}."
        yield WeightRule(
            f"language_model.{name}.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
            f"{target}{bias}.weight",
        )
        yield WeightRule(f"language_model.{name}.final_layer_norm.weight", f"{target}norm.weight")
        yield from _attention(f"{block}0.", "SelfAttention", into, "attn", "qkv")
        if name == "decoder":
            yield from _attention(f"{block}1.", "EncDecAttention", into, "cross", "kv")
        last = f"{block}{1 if name == 'encoder' else 2}."
        yield WeightRule(f"{last}layer_norm.weight", f"{into}mlp_norm.weight")
        yield WeightRule(f"{last}DenseReluDense.wi_0.weight", f"{into}mlp.gate_up.weight", "gate")
        yield WeightRule(f"{last}DenseReluDense.wi_1.weight", f"{into}mlp.gate_up.weight", "up")
        yield WeightRule(f"{last}DenseReluDense.wo.weight", f"{into}mlp.down.weight")


def t5_ignored(stored: Collection[str], *, tied_head: bool) -> Iterator[IgnoredWeight]:
    for name in (*_TABLES, *((HEAD,) if tied_head else ())):
        if name != _table(stored):
            yield IgnoredWeight(name, "the embedding, stored again")


def _table(stored: Collection[str]) -> str:
    """Where the embedding is: writers differ in which of its names they keep."""
    return next((name for name in _TABLES if name in stored), _TABLES[0])


def _attention(source: str, name: str, target: str, part: str, fused: str) -> Iterator[WeightRule]:
    yield WeightRule(f"{source}layer_norm.weight", f"{target}{part}_norm.weight")
    yield WeightRule(f"{source}{name}.o.weight", f"{target}{part}.out.weight")
    for shard in "qkv":
        into = f"{part}.{fused}" if shard in fused else f"{part}.{shard}"
        yield WeightRule(
            f"{source}{name}.{shard}.weight", f"{target}{into}.weight", shard if shard in fused else ""
        )


def _rules(
    source: str, target: str, names: Mapping[str, str], leaves: tuple[str, ...]
) -> Iterator[WeightRule]:
    for name, part in names.items():
        for leaf in leaves:
            yield WeightRule(f"{source}{name}.{leaf}", f"{target}{part}.{leaf}")
