"""Reads ``config.json`` of the three generations. Sparse files rely on the defaults of their text model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmcore.decoder_config import DecoderConfig
from mmcore.errors import CheckpointError, UnsupportedOptionError
from mmcore.parts.fields import Json, activation_of, need
from mmcore.parts.pictures import PictureShape
from mmcore.parts.rotary_decoder import rotary_decoder
from mmcore.parts.vit import VitConfig, vit_config
from mmcore_llava.features import FeatureMap
from mmcore_llava.vision import LlavaEncoder

_SIZES = ("vocab_size", "intermediate_size", "num_key_value_heads", "max_position_embeddings")
_COMMON = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
_TEXT: Mapping[str, Json] = {
    "llama": dict(zip(_SIZES, (32000, 11008, 32, 2048), strict=True)),
    "mistral": dict(zip(_SIZES, (32000, 14336, 8, 131072), strict=True)),
    "qwen2": dict(zip(_SIZES, (151936, 22016, 32, 32768), strict=True)) | {"use_sliding_window": False},
}
_VISION: Mapping[str, Json] = {
    "clip_vision_model": {"hidden_act": "quick_gelu", "layer_norm_eps": 1e-5},
    "siglip_vision_model": {"hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6},
}


def decoder_config(config: Json) -> DecoderConfig:
    text, kind = need(config, "text_config"), text_kind(config)
    known = {**_COMMON, **_known(_TEXT, kind, "text")}
    tied = bool(config.get("tie_word_embeddings", False))
    return rotary_decoder({**known, **text}, qkv_bias=kind == "qwen2", tied_head=tied)


def text_kind(config: Json) -> str:
    return str(need(config, "text_config").get("model_type", "llama"))


def vision_encoder(config: Json, shape: PictureShape) -> LlavaEncoder:
    vit = _tower(config)
    return LlavaEncoder(
        vit=vit,
        shape=shape,
        features=_features(config, vit),
        activation=activation_of(config.get("projector_hidden_act", "gelu")),
        bias=config.get("multimodal_projector_bias", True),
        width=decoder_config(config).hidden_size,
    )


def vision_part(config: Json) -> dict[str, Any]:
    """``vision_config``, with the defaults of its kind."""
    vision = need(config, "vision_config")
    return {**_known(_VISION, vision.get("model_type", "clip_vision_model"), "vision"), **vision}


def _tower(config: Json) -> VitConfig:
    vision, layer = vision_part(config), config.get("vision_feature_layer", -2)
    if not isinstance(layer, int):
        raise UnsupportedOptionError(
            f"config.json: vision_feature_layer {layer!r}: one is built, not several"
        )
    clip = vision.get("model_type", "clip_vision_model") == "clip_vision_model"
    flags = {"class_token": clip, "pre_norm": clip, "post_norm": False, "patch_bias": not clip}
    return vit_config(vision, feature_layer=layer, **flags)


def _features(config: Json, vit: VitConfig) -> FeatureMap:
    """``default`` drops the class token. A SigLIP file says ``full``: it has none."""
    strategy, tiled = config.get("vision_feature_select_strategy", "default"), is_tiled(config)
    leading = int(strategy == "full" and vit.class_token)
    if (leading and tiled) or (strategy == "default" and not vit.class_token):
        raise UnsupportedOptionError(f"config.json: vision_feature_select_strategy {strategy!r} is not built")
    return FeatureMap(side=vit.side, leading=leading, newline=tiled, max_tiles=_max_tiles(config))


def is_tiled(config: Json) -> bool:
    return config.get("model_type") in ("llava_next", "llava_onevision")


def is_onevision(config: Json) -> bool:
    return config.get("model_type") == "llava_onevision"


def _max_tiles(config: Json) -> int:
    """``anyres_max_9`` allows a map as large as nine tiles."""
    name = config.get("vision_aspect_ratio", "anyres_max_9") if is_onevision(config) else "anyres_max_0"
    if not name.removeprefix("anyres_max_").isdecimal():
        raise UnsupportedOptionError(f"config.json: vision_aspect_ratio {name!r} is not built yet")
    return int(name.removeprefix("anyres_max_"))


def _known(table: Mapping[str, Json], kind: str, what: str) -> Json:
    if kind not in table:
        raise CheckpointError(f"config.json: {what} model {kind!r} is none of {', '.join(table)}")
    return table[kind]
