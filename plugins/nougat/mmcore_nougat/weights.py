"""Which checkpoint tensor fills which parameter."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from mmcore.adapter import IgnoredWeight, WeightRule
from mmcore.parts.learned_decoder import learned_decoder_rules
from mmcore.parts.renamed import renamed

_BOTH = ("weight", "bias")
_DECODER = "decoder.model.decoder."
_NORMS = {"layer_norm": "norm", "layernorm_embedding": "embed_norm"}
_TABLE, _HEAD = f"{_DECODER}embed_tokens.weight", "decoder.lm_head.weight"
_EMBEDDING = "decoder.embedding.weight"
_BLOCK_NORMS = {"layernorm_before": "attn_norm", "layernorm_after": "mlp_norm"}
_BLOCK = {"attention.output.dense": "attn.out", "intermediate.dense": "mlp.up", "output.dense": "mlp.down"}


def weight_rules(stored: Collection[str], *, tied_head: bool) -> Iterator[WeightRule]:
    """``stored`` names the tensors of the file, as far as they are known."""
    yield from _encoder_rules()
    for rule in learned_decoder_rules(_DECODER, norms=_NORMS, cross=True):
        if rule.source != _TABLE:
            yield rule
    yield WeightRule(_table(stored, tied_head=tied_head), _EMBEDDING)
    if not tied_head:
        yield WeightRule(_HEAD, "decoder.head.weight")


def ignored_weights(stored: Collection[str], *, tied_head: bool) -> Iterator[IgnoredWeight]:
    index = "encoder.encoder.layers.{}.blocks.{}.attention.self.relative_position_index"
    yield IgnoredWeight(index, "follows from the size of a window")
    if tied_head:
        other = _HEAD if _table(stored, tied_head=True) == _TABLE else _TABLE
        yield IgnoredWeight(other, "the embedding, stored again", _EMBEDDING)


def _table(stored: Collection[str], *, tied_head: bool) -> str:
    """Where the embedding is: of a tied pair, writers differ in which they keep."""
    return _HEAD if tied_head and _HEAD in stored and _TABLE not in stored else _TABLE


def _encoder_rules() -> Iterator[WeightRule]:
    patches = "encoder.embeddings.patch_embeddings.projection"
    yield WeightRule(f"{patches}.weight", "encoder.patches.weight", reshape=True)
    yield WeightRule(f"{patches}.bias", "encoder.patches.bias")
    ends = {"encoder.embeddings.norm": "encoder.norm", "enc_to_dec_proj": "encoder.projection"}
    yield from renamed("", "", ends, _BOTH)
    source, target = "encoder.encoder.layers.{}.", "encoder.stages.{}."
    yield from renamed(f"{source}downsample.", f"{target}merge.", {"norm": "norm"}, _BOTH)
    yield WeightRule(f"{source}downsample.reduction.weight", f"{target}merge.reduction.weight")
    source, target = f"{source}blocks.{{}}.", f"{target}blocks.{{}}."
    yield from renamed(source, target, _BLOCK | _BLOCK_NORMS, _BOTH)
    attention = f"{source}attention.self."
    yield WeightRule(f"{attention}relative_position_bias_table", f"{target}attn.bias_table")
    for name in ("query", "key", "value"):
        for leaf in _BOTH:
            yield WeightRule(f"{attention}{name}.{leaf}", f"{target}attn.qkv.{leaf}", name[0])
