"""Which checkpoint tensor fills which parameter."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from mmcore.adapter import IgnoredWeight, WeightRule
from mmcore.parts.biased_decoder import biased_rules
from mmcore.parts.learned_decoder import learned_decoder_rules
from mmcore.parts.renamed import renamed
from mmcore.parts.vit import FUSED, vit_rules

_BOTH = ("weight", "bias")
_TABLES = tuple(
    f"language_model.{part}.weight" for part in ("shared", "decoder.embed_tokens", "encoder.embed_tokens")
)
HEAD = "language_model.lm_head.weight"
TABLE = "decoder.embedding.weight"

_QFORMER = {
    "intermediate_query.dense": "mlp.up",
    "output_query.dense": "mlp.down",
    "output_query.LayerNorm": "norm",
}


def encoder_rules() -> Iterator[WeightRule]:
    yield from vit_rules(("vision_model.",), "encoder.tower", FUSED)
    yield WeightRule("query_tokens", "encoder.queries", reshape=True)
    source, target = "qformer.encoder.layer.{}", "encoder.layers.{}"
    yield from renamed(
        "", "encoder.", {"qformer.layernorm": "norm", "language_projection": "projection"}, _BOTH
    )
    yield from renamed(f"{source}.", f"{target}.", _QFORMER, _BOTH)
    for name, part in (("attention", "attn"), ("crossattention", "cross")):
        own = {"attention.query": "q", "output.dense": "out", "output.LayerNorm": "norm"}
        yield from renamed(f"{source}.{name}.", f"{target}.{part}.", own, _BOTH)
        for leaf in _BOTH:
            for shard, long in (("k", "key"), ("v", "value")):
                yield WeightRule(
                    f"{source}.{name}.attention.{long}.{leaf}", f"{target}.{part}.kv.{leaf}", shard
                )


def opt_rules() -> Iterator[WeightRule]:
    yield from learned_decoder_rules("language_model.model.decoder.")


def t5_rules(stored: Collection[str], *, tied_head: bool) -> Iterator[WeightRule]:
    """``stored`` names tensors of the file, as far as they are known."""
    yield WeightRule(_table(stored), TABLE)
    if not tied_head:
        yield WeightRule(HEAD, "decoder.head.weight")
    yield from biased_rules("language_model.")


def t5_ignored(stored: Collection[str], *, tied_head: bool) -> Iterator[IgnoredWeight]:
    for name in (*_TABLES, *((HEAD,) if tied_head else ())):
        if name != _table(stored):
            yield IgnoredWeight(name, "the embedding, stored again", TABLE)


def _table(stored: Collection[str]) -> str:
    """Where the embedding is: writers differ in which of its names they keep."""
    return next((name for name in _TABLES if name in stored), _TABLES[0])
