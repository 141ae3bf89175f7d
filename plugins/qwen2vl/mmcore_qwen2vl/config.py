"""Reads ``config.json`` of Qwen2-VL and Qwen2.5-VL, flat or nested, old names or new."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mmcore.decoder_config import DecoderConfig
from mmcore.errors import UnsupportedOptionError
from mmcore.parts.fields import Json, activation_of, need, only_built
from mmcore.parts.frame_patches import FramePatches
from mmcore.parts.rotary_decoder import rope_of, rotary_decoder
from mmcore_qwen2vl.processor import CLIP_MEAN, CLIP_STD
from mmcore_qwen2vl.vision import VisionEncoder


def decoder_config(config: Json) -> DecoderConfig:
    text = config.get("text_config") or config
    if text.get("use_sliding_window"):
        raise UnsupportedOptionError("config.json: use_sliding_window is not built yet")
    tied = bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", False)))
    row = rotary_decoder({"rms_norm_eps": 1e-5, "max_position_embeddings": 32768, **text}, qkv_bias=True)
    rope = rope_of(text, theta=1_000_000.0)
    return replace(row, positions=replace(rope, sections=rope.sections or (16, 24, 24)), tied_head=tied)


def vision_encoder(config: Json) -> VisionEncoder:
    """The two generations tell themselves apart by ``window_size``."""
    vision = need(config, "vision_config")
    patch = vision.get("patch_size", 14)
    only_built(vision, {"in_channels": 3, "in_chans": 3}, "vision_config")
    windowed = "window_size" in vision or "fullatt_block_indexes" in vision
    part = _windowed_part(vision, patch) if windowed else _plain_part(vision)
    return VisionEncoder(
        depth=need(vision, "depth"),
        heads=need(vision, "num_heads"),
        patches=FramePatches(
            patch=patch,
            temporal=vision.get("temporal_patch_size", 2),
            merge=vision.get("spatial_merge_size", 2),
            mean=CLIP_MEAN,
            std=CLIP_STD,
        ),
        rope_theta=float((vision.get("rope_parameters") or {}).get("rope_theta", 10_000.0)),
        **part,
    )


def _plain_part(vision: Json) -> dict[str, Any]:
    width = need(vision, "embed_dim")
    return {
        "width": width,
        "intermediate": int(width * vision.get("mlp_ratio", 4)),
        "out_width": need(vision, "hidden_size"),
        "activation": activation_of(vision.get("hidden_act", "quick_gelu")),
        "norm": "layer",
        "gated": False,
    }


def _windowed_part(vision: Json, patch: int) -> dict[str, Any]:
    return {
        "width": need(vision, "hidden_size"),
        "intermediate": need(vision, "intermediate_size"),
        "out_width": need(vision, "out_hidden_size"),
        "activation": activation_of(vision.get("hidden_act", "silu")),
        "norm": "rms",
        "gated": True,
        "window": vision.get("window_size", 112) // vision.get("spatial_merge_size", 2) // patch,
        "full_layers": tuple(vision.get("fullatt_block_indexes", (7, 15, 23, 31))),
    }
