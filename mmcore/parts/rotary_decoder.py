"""Decoders of the most common kind: rotary positions, RMS norm before each part, gated MLP.

Field and tensor names are those of the hub's text models: ``hidden_size``, ``layers.N.self_attn.q_proj``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mmcore.adapter import IgnoredWeight, WeightRule
from mmcore.decoder_config import DecoderConfig, Rope
from mmcore.errors import UnsupportedOptionError
from mmcore.parts.fields import Json, activation_of, need

_LAYER = "decoder.layers.{}"


def rotary_decoder(text: Json, *, qkv_bias: bool = False, tied_head: bool = False) -> DecoderConfig:
    """From a text config. ``qkv_bias`` is the architecture's rule; ``tied_head`` holds where the file is
    silent.

    Raises `CheckpointError` for a missing size, `UnsupportedOptionError` for a sliding window.
    """
    _refuse_window(text)
    hidden, heads = need(text, "hidden_size"), need(text, "num_attention_heads")
    biased = bool(text.get("attention_bias"))
    return DecoderConfig(
        vocab_size=need(text, "vocab_size"),
        hidden_size=hidden,
        num_layers=need(text, "num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=text.get("num_key_value_heads") or heads,
        head_dim=text.get("head_dim") or hidden // heads,
        intermediate_size=need(text, "intermediate_size"),
        positions=rope_of(text),
        max_length=text.get("max_position_embeddings", 2048),
        norm_eps=text.get("rms_norm_eps", 1e-6),
        activation=activation_of(text.get("hidden_act", "silu")),
        q_bias=qkv_bias or biased,
        k_bias=qkv_bias or biased,
        v_bias=qkv_bias or biased,
        out_bias=biased,
        tied_head=bool(text.get("tie_word_embeddings", tied_head)),
    )


def rope_of(text: Json, theta: float = 10_000.0) -> Rope:
    """``rope_theta`` with ``rope_scaling``, or ``rope_parameters`` with both; else ``theta``."""
    settings: Json = text.get("rope_parameters") or text.get("rope_scaling") or {}
    return Rope(
        theta=float(settings.get("rope_theta") or text.get("rope_theta") or theta),
        sections=tuple(settings.get("mrope_section", ())),
        scaling=_scaling(settings),
    )


def rotary_decoder_rules(prefixes: Sequence[str], head: str | None) -> tuple[WeightRule, ...]:
    """Rules for tensors ``{prefix}layers.N.*`` of each prefix; ``head`` names the output matrix if untied."""
    rules = [rule for prefix in prefixes for rule in _rules(prefix)]
    return (*rules, *([] if head is None else [WeightRule(head, "decoder.head.weight")]))


def rotary_buffers(prefixes: Sequence[str]) -> tuple[IgnoredWeight, ...]:
    """Frequencies that old files store."""
    reason = "rotary frequencies follow from config.json"
    leaves = ("layers.{}.self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq")
    return tuple(IgnoredWeight(prefix + leaf, reason) for prefix in prefixes for leaf in leaves)


def tied_twin(head: str) -> IgnoredWeight:
    """A head that files hold although it is the embedding."""
    return IgnoredWeight(head, "the head is the embedding, stored twice", same_as="decoder.embedding.weight")


def _refuse_window(text: Json) -> None:
    window = text.get("sliding_window")
    used = window is not None and text.get("use_sliding_window", True)
    if used and window < text.get("max_position_embeddings", 0):
        raise UnsupportedOptionError(f"config.json: sliding_window {window} is not built yet")


def _scaling(settings: Json) -> tuple[tuple[str, float | str], ...]:
    """Sorted plain fields; none where theta and sections are all that the settings say."""
    if settings.get("rope_type", settings.get("type", "default")) in ("default", "mrope"):
        return ()
    plain = {name: value for name, value in settings.items() if isinstance(value, str | int | float)}
    plain.pop("rope_theta", None)
    return tuple(sorted(plain.items()))


def _rules(prefix: str) -> Iterator[WeightRule]:
    yield WeightRule(prefix + "embed_tokens.weight", "decoder.embedding.weight")
    yield WeightRule(prefix + "norm.weight", "decoder.norm.weight")
    layer = prefix + "layers.{}"
    yield WeightRule(f"{layer}.input_layernorm.weight", f"{_LAYER}.attn_norm.weight")
    yield WeightRule(f"{layer}.post_attention_layernorm.weight", f"{_LAYER}.mlp_norm.weight")
    for leaf in ("weight", "bias"):
        for shard in ("q", "k", "v"):
            yield WeightRule(f"{layer}.self_attn.{shard}_proj.{leaf}", f"{_LAYER}.attn.qkv.{leaf}", shard)
        yield WeightRule(f"{layer}.self_attn.o_proj.{leaf}", f"{_LAYER}.attn.out.{leaf}")
    for shard in ("gate", "up"):
        yield WeightRule(f"{layer}.mlp.{shard}_proj.weight", f"{_LAYER}.mlp.gate_up.weight", shard)
    yield WeightRule(f"{layer}.mlp.down_proj.weight", f"{_LAYER}.mlp.down.weight")
