"""Reads ``config.json`` and the image processor's settings."""

from __future__ import annotations

from collections.abc import Mapping

from mmcore.decoder_config import DecoderConfig
from mmcore.errors import CheckpointError
from mmcore.parts.fields import Json, activation_of, need, only_built
from mmcore.parts.learned_decoder import crossed_decoder
from mmcore_nougat.processor import PageProcessor
from mmcore_nougat.vision import PageEncoder

_SWIN_BUILT: Json = {"model_type": "donut-swin", "use_absolute_embeddings": False, "num_channels": 3}
_MBART_BUILT: Json = {"model_type": "mbart", "cross_attention_hidden_size": None}
_STEPS: Json = dict.fromkeys(
    (f"do_{s}" for s in ("resize", "thumbnail", "pad", "rescale", "normalize")), True
)


def decoder_config(config: Json) -> DecoderConfig:
    part = need(config, "decoder")
    only_built(part, _MBART_BUILT, "decoder")
    return crossed_decoder(part)


def is_paper(settings: Json) -> bool:
    """The image processor is Nougat's, else Donut's. Raises `CheckpointError` where it is neither."""
    name = str(settings.get("image_processor_type") or settings.get("feature_extractor_type"))
    if not name.startswith(("Nougat", "Donut")):
        raise CheckpointError(
            f"preprocessor_config.json: the image processor is {name}, neither Nougat's nor Donut's"
        )
    return name.startswith("Nougat")


def page_processor(settings: Json, encoder: PageEncoder) -> PageProcessor:
    """Raises `CheckpointError` and `UnsupportedOptionError`."""
    paper, rows = is_paper(settings), encoder.stages[-1]
    only_built(settings, {**_STEPS, "rescale_factor": 1 / 255}, "image processor", "preprocessor_config.json")
    return PageProcessor(
        height=encoder.height,
        width=encoder.width,
        resample={2: "bilinear", 3: "bicubic"}[settings.get("resample", 2)],
        crops=paper and settings.get("do_crop_margin", True),
        turns=bool(settings.get("do_align_long_axis")),
        reduces=paper,
        rows=rows.height * rows.width,
        row_width=encoder.row_width,
    )


def page_encoder(config: Json, settings: Json) -> PageEncoder:
    """Raises `CheckpointError` and `UnsupportedOptionError`."""
    part, size = need(config, "encoder"), need(settings, "size", "preprocessor_config.json")
    only_built(part, _SWIN_BUILT, "encoder")
    width, height = (size["width"], size["height"]) if isinstance(size, Mapping) else size
    return PageEncoder(
        height=height,
        width=width,
        mean=tuple(settings["image_mean"]),
        std=tuple(settings["image_std"]),
        patch=part["patch_size"],
        channels=part["embed_dim"],
        depths=tuple(part["depths"]),
        heads=tuple(part["num_heads"]),
        window=part["window_size"],
        mlp_ratio=float(part["mlp_ratio"]),
        activation=activation_of(part["hidden_act"]),
        qkv_bias=bool(part["qkv_bias"]),
        norm_eps=float(part["layer_norm_eps"]),
        row_width=decoder_config(config).cross_width,
    )
