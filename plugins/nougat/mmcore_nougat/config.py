"""Reads ``config.json`` and the image processor's settings. Sparse files rely on their parts' defaults."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mmcore.decoder_config import DecoderConfig
from mmcore.errors import CheckpointError
from mmcore.parts.fields import Json, activation_of, need, only_built
from mmcore.parts.learned_decoder import learned_decoder
from mmcore_nougat.processor import PageProcessor, PageShape
from mmcore_nougat.vision import PageEncoder

_SWIN: Json = {
    "patch_size": 4,
    "embed_dim": 96,
    "depths": (2, 2, 6, 2),
    "num_heads": (3, 6, 12, 24),
    "window_size": 7,
    "mlp_ratio": 4.0,
    "qkv_bias": True,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-5,
}
_SWIN_BUILT: Json = {"model_type": "donut-swin", "use_absolute_embeddings": False, "num_channels": 3}
_MBART: Json = {
    "vocab_size": 50265,
    "max_position_embeddings": 1024,
    "decoder_layers": 12,
    "decoder_ffn_dim": 4096,
    "decoder_attention_heads": 16,
    "d_model": 1024,
    "activation_function": "gelu",
    "scale_embedding": False,
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
_MBART_BUILT: Json = {
    "model_type": "mbart",
    "is_decoder": True,
    "add_cross_attention": True,
    "cross_attention_hidden_size": None,
}
_HUB_NAMES = {
    "hidden_size": "d_model",
    "num_hidden_layers": "decoder_layers",
    "num_attention_heads": "decoder_attention_heads",
    "ffn_dim": "decoder_ffn_dim",
}
_MEANS = {"nougat": (0.485, 0.456, 0.406), "donut": (0.5, 0.5, 0.5)}
_STDS = {"nougat": (0.229, 0.224, 0.225), "donut": (0.5, 0.5, 0.5)}
_SIZES = {"nougat": (896, 672), "donut": (2560, 1920)}
_STEPS = ("do_resize", "do_thumbnail", "do_pad", "do_rescale", "do_normalize")


def decoder_part(config: Json) -> dict[str, Any]:
    """``decoder``, with the defaults of its kind."""
    part = {**_MBART, **need(config, "decoder")}
    only_built({"model_type": None, **part}, _MBART_BUILT, "decoder")
    return part


def decoder_config(config: Json) -> DecoderConfig:
    part = decoder_part(config)
    decoder = learned_decoder({**part, **{name: part[own] for name, own in _HUB_NAMES.items()}})
    return replace(
        decoder,
        embed_scale=math.sqrt(decoder.hidden_size) if part["scale_embedding"] else 1.0,
        embed_norm=True,
        cross_attention=True,
        cross_width=decoder.hidden_size,
        tied_head=bool(part["tie_word_embeddings"]),
    )


def page_kind(settings: Json) -> str:
    """``nougat`` or ``donut``, by the image processor's name. Raises `CheckpointError`."""
    names = (settings.get(f"{what}_type") for what in ("image_processor", "feature_extractor"))
    name = next((name for name in names if name), "")
    kind = next((kind for kind in _SIZES if name.lower().startswith(kind)), None)
    if kind is None and "do_crop_margin" in settings:
        return "nougat"
    if kind is None:
        raise CheckpointError(
            f"preprocessor_config.json: image processor {name!r} is neither NougatImageProcessor nor "
            "DonutImageProcessor"
        )
    return kind


def page_shape(settings: Json) -> PageShape:
    """From the image processor's settings. Raises `CheckpointError` for what is not built."""
    kind = page_kind(settings)
    for step in _STEPS:
        if not settings.get(step, True):
            raise CheckpointError(f"preprocessor_config.json: {step} false is not built")
    height, width = _size(settings.get("size") or _SIZES[kind])
    if min(height, width) < 1:
        raise CheckpointError(f"preprocessor_config.json: a page of {width}x{height} pixels is none")
    resample = settings.get("resample", 2)
    if resample not in (2, 3):
        raise CheckpointError(f"preprocessor_config.json: resample {resample!r} is not built, 2 and 3 are")
    return PageShape(
        height=height,
        width=width,
        resample="bilinear" if resample == 2 else "bicubic",
        crops=kind == "nougat" and bool(settings.get("do_crop_margin", True)),
        turns=bool(settings.get("do_align_long_axis", False)),
        reduces=kind == "nougat",
    )


def _size(size: Any) -> tuple[int, int]:
    """Height and width; a list has the width first."""
    if isinstance(size, Mapping):
        return int(size["height"]), int(size["width"])
    width, height = size
    return int(height), int(width)


def page_encoder(config: Json, settings: Json) -> PageEncoder:
    part = {**_SWIN, **need(config, "encoder")}
    only_built({"model_type": "donut-swin", **part}, _SWIN_BUILT, "encoder")
    shape, kind = page_shape(settings), page_kind(settings)
    hidden = decoder_part(config)["d_model"]
    encoder = PageEncoder(
        height=shape.height,
        width=shape.width,
        mean=tuple(settings.get("image_mean") or _MEANS[kind]),
        std=tuple(settings.get("image_std") or _STDS[kind]),
        patch=int(part["patch_size"]),
        channels=int(part["embed_dim"]),
        depths=tuple(part["depths"]),
        heads=tuple(part["num_heads"]),
        window=int(part["window_size"]),
        mlp_ratio=float(part["mlp_ratio"]),
        activation=activation_of(part["hidden_act"]),
        qkv_bias=bool(part["qkv_bias"]),
        norm_eps=float(part["layer_norm_eps"]),
    )
    _check(encoder)
    return replace(encoder, projected=0 if encoder.stages[-1].channels == hidden else hidden)


def _check(encoder: PageEncoder) -> None:
    """Raises `CheckpointError` where the page is too small for its windows, or heads do not share a stage."""
    if min(encoder.patch, encoder.channels, encoder.window, *encoder.depths, *encoder.heads) < 1:
        raise CheckpointError("config.json: encoder holds a size under 1")
    for number, stage in enumerate(encoder.stages, start=1):
        if min(stage.height, stage.width) < encoder.window:
            raise CheckpointError(
                f"config.json: stage {number} of the encoder has {stage.height}x{stage.width} places for "
                f"windows of {encoder.window}; the page of preprocessor_config.json is too small"
            )
        if stage.channels % stage.heads:
            raise CheckpointError(
                f"config.json: {stage.heads} heads cannot share {stage.channels} channels evenly"
            )


def page_processor(settings: Json, encoder: PageEncoder) -> PageProcessor:
    return PageProcessor(shape=page_shape(settings), rows=encoder.rows, row_width=encoder.row_width)
