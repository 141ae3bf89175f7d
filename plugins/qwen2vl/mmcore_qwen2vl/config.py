"""Reads ``config.json`` of Qwen2-VL and Qwen2.5-VL, flat or nested, old names or new."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmcore.decoder_config import Activation, DecoderConfig, Rope
from mmcore.errors import CheckpointError, UnsupportedOptionError
from mmcore_qwen2vl.vision import VisionEncoder

Json = Mapping[str, Any]

_ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "gelu": "gelu",
    "quick_gelu": "quick_gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}


def decoder_config(config: Json) -> DecoderConfig:
    text = config.get("text_config") or config
    if text.get("use_sliding_window"):
        raise UnsupportedOptionError("config.json: use_sliding_window is not built yet")
    hidden, heads = need(text, "hidden_size"), need(text, "num_attention_heads")
    return DecoderConfig(
        vocab_size=need(text, "vocab_size"),
        hidden_size=hidden,
        num_layers=need(text, "num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=text.get("num_key_value_heads") or heads,
        head_dim=hidden // heads,
        intermediate_size=need(text, "intermediate_size"),
        positions=_rope(text),
        max_length=text.get("max_position_embeddings", 32768),
        norm_eps=text.get("rms_norm_eps", 1e-5),
        activation=_activation(text.get("hidden_act", "silu")),
        q_bias=True,
        k_bias=True,
        v_bias=True,
        tied_head=bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))),
    )


def _rope(text: Json) -> Rope:
    """``rope_theta`` with ``rope_scaling``, or ``rope_parameters`` with both."""
    settings: Json = text.get("rope_parameters") or text.get("rope_scaling") or {}
    theta = settings.get("rope_theta", text.get("rope_theta", 1_000_000.0))
    sections = tuple(settings.get("mrope_section", (16, 24, 24)))
    return Rope(theta=float(theta), sections=sections, scaling=_scaling(settings))


def _scaling(settings: Json) -> tuple[tuple[str, float | str], ...]:
    """Sorted plain fields; none where sections are all that the settings say."""
    if settings.get("rope_type", settings.get("type", "default")) in ("default", "mrope"):
        return ()
    plain = {name: value for name, value in settings.items() if isinstance(value, str | int | float)}
    plain.pop("rope_theta", None)
    return tuple(sorted(plain.items()))


def vision_encoder(config: Json) -> VisionEncoder:
    """The two generations tell themselves apart by ``window_size``."""
    vision = need(config, "vision_config")
    patch = vision.get("patch_size", 14)
    values = vision.get("in_channels", vision.get("in_chans", 3)) * patch**2
    windowed = "window_size" in vision or "fullatt_block_indexes" in vision
    part = _windowed_part(vision, patch) if windowed else _plain_part(vision)
    return VisionEncoder(
        depth=need(vision, "depth"),
        heads=need(vision, "num_heads"),
        patch_values=values * vision.get("temporal_patch_size", 2),
        merge=vision.get("spatial_merge_size", 2),
        rope_theta=float((vision.get("rope_parameters") or {}).get("rope_theta", 10_000.0)),
        **part,
    )


def _plain_part(vision: Json) -> dict[str, Any]:
    width = need(vision, "embed_dim")
    return {
        "width": width,
        "intermediate": int(width * vision.get("mlp_ratio", 4)),
        "out_width": need(vision, "hidden_size"),
        "activation": _activation(vision.get("hidden_act", "quick_gelu")),
        "norm": "layer",
        "gated": False,
    }


def _windowed_part(vision: Json, patch: int) -> dict[str, Any]:
    return {
        "width": need(vision, "hidden_size"),
        "intermediate": need(vision, "intermediate_size"),
        "out_width": need(vision, "out_hidden_size"),
        "activation": _activation(vision.get("hidden_act", "silu")),
        "norm": "rms",
        "gated": True,
        "window": vision.get("window_size", 112) // vision.get("spatial_merge_size", 2) // patch,
        "full_layers": tuple(vision.get("fullatt_block_indexes", (7, 15, 23, 31))),
    }


def _activation(name: str) -> Activation:
    if name not in _ACTIVATIONS:
        raise CheckpointError(f"config.json: hidden_act {name!r} is none of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def need(part: Json, name: str) -> Any:
    """A field that has no default."""
    if name not in part:
        raise CheckpointError(f"config.json: field {name!r} is missing; is this a Qwen2-VL checkpoint?")
    return part[name]
