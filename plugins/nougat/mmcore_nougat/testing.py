"""Tiny random checkpoints of papers and forms, with the files and names of the published ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from mmcore.inputs.checkpoint import Checkpoint
from mmcore.testing.tiny import byte_tokenizer, fan_in_weights, save_checkpoint, tensor_shapes, write_files
from mmcore_nougat.adapter import NougatAdapter
from mmcore_nougat.windows import distances

Variant = Literal["nougat", "donut"]
VARIANTS: tuple[Variant, ...] = ("nougat", "donut")
SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")
FIELD_TOKENS = tuple(
    token.format(name)
    for name in ("docvqa", "question", "answer", "menu", "nm", "price")
    for token in ("<s_{}>", "</s_{}>")
)
TOKEN_IDS = {token: 256 + n for n, token in enumerate((*SPECIAL_TOKENS, "<sep/>", "<paid/>", *FIELD_TOKENS))}


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyShape:
    """Sizes of a tiny checkpoint."""

    height: int = 64
    width: int = 48
    patch: int = 4
    channels: int = 8
    depths: tuple[int, ...] = (2, 2, 2)
    heads: tuple[int, ...] = (2, 2, 4)
    window: int = 3
    hidden: int = 32
    layers: int = 2
    max_length: int = 512
    tied: bool = False
    turns: bool = False
    shards: int = 1


SHAPES: dict[Variant, TinyShape] = {
    "nougat": TinyShape(),
    # Odd sizes throughout, and rows that are projected to the decoder's width.
    "donut": TinyShape(
        height=42,
        width=58,
        channels=12,
        depths=(2, 3),
        heads=(2, 4),
        window=4,
        hidden=40,
        tied=True,
        turns=True,
    ),
}


def write_tiny_checkpoint(
    folder: Path | str, variant: Variant = "nougat", seed: int = 0, **overrides: Any
) -> Path:
    """Write the checkpoint and give its folder. ``overrides`` are fields of `TinyShape`."""
    shape, folder = replace(SHAPES[variant], **overrides), Path(folder)
    files = {
        "config.json": config(shape),
        "generation_config.json": {"eos_token_id": TOKEN_IDS["</s>"], "pad_token_id": TOKEN_IDS["<pad>"]},
        "preprocessor_config.json": picture_settings(shape, variant),
        "tokenizer.json": tokenizer(variant),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **dict(zip(("bos_token", "pad_token", "eos_token", "unk_token"), SPECIAL_TOKENS, strict=True)),
        },
    }
    write_files(folder, files)
    checkpoint = Checkpoint(folder)
    adapter = NougatAdapter.from_config(checkpoint.config, checkpoint)
    patches = "encoder.embeddings.patch_embeddings.projection.weight"
    shapes = tensor_shapes(adapter, {patches: (shape.channels, 3, shape.patch, shape.patch)})
    gains = {
        "query.weight": 3.0,
        "relative_position_bias_table": 2.0,
        "q_proj.weight": 6.0,
        "encoder_attn.out_proj.weight": 3.0,
        "embed_positions": 3.0,
    }
    weights = fan_in_weights(shapes, seed, gains)
    index = torch.from_numpy(distances(shape.window))
    for name in tuple(weights):
        if name.endswith("relative_position_bias_table"):
            weights[name.replace("bias_table", "index")] = index.clone()
    return save_checkpoint(folder, weights, files, shards=shape.shards)


def tokenizer(variant: Variant) -> dict[str, Any]:
    """``tokenizer.json``. Like the published file, that of papers pads and truncates."""
    tokens = tuple(TOKEN_IDS) if variant == "donut" else SPECIAL_TOKENS
    made = dict(byte_tokenizer(tokens))
    if variant == "nougat":
        made["truncation"] = {
            "direction": "Right",
            "max_length": 4096,
            "strategy": "LongestFirst",
            "stride": 0,
        }
        made["padding"] = {
            "strategy": {"Fixed": 4096},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": TOKEN_IDS["<pad>"],
            "pad_type_id": 0,
            "pad_token": "<pad>",
        }
    return made


def picture_settings(shape: TinyShape, variant: Variant) -> dict[str, Any]:
    """``preprocessor_config.json``; forms have the width first, as their files had."""
    name = f"{variant.title()}ImageProcessor"
    steps = {f"do_{step}": True for step in ("resize", "thumbnail", "pad", "rescale", "normalize")}
    common = {**steps, "do_align_long_axis": shape.turns, "resample": 2, "rescale_factor": 1 / 255}
    if variant == "donut":
        half = [0.5, 0.5, 0.5]
        return {
            "image_processor_type": name,
            **common,
            "size": [shape.width, shape.height],
            "image_mean": half,
            "image_std": half,
        }
    return {
        "image_processor_type": name,
        **common,
        "do_crop_margin": True,
        "size": {"height": shape.height, "width": shape.width},
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
    }


def config(shape: TinyShape) -> dict[str, Any]:
    """``config.json``."""
    return {
        "architectures": ["VisionEncoderDecoderModel"],
        "model_type": "vision-encoder-decoder",
        "is_encoder_decoder": True,
        "decoder_start_token_id": TOKEN_IDS["<s>"],
        "pad_token_id": TOKEN_IDS["<pad>"],
        "tie_word_embeddings": False,
        "encoder": {
            "model_type": "donut-swin",
            "image_size": [shape.height, shape.width],
            "patch_size": shape.patch,
            "num_channels": 3,
            "embed_dim": shape.channels,
            "depths": list(shape.depths),
            "num_heads": list(shape.heads),
            "window_size": shape.window,
            "mlp_ratio": 2.0,
            "qkv_bias": True,
            "hidden_act": "gelu",
            "layer_norm_eps": 1e-5,
            "use_absolute_embeddings": False,
        },
        "decoder": {
            "model_type": "mbart",
            "is_decoder": True,
            "is_encoder_decoder": False,
            "add_cross_attention": True,
            "add_final_layer_norm": True,
            "vocab_size": 256 + len(TOKEN_IDS),
            "max_position_embeddings": shape.max_length,
            "d_model": shape.hidden,
            "decoder_layers": shape.layers,
            "decoder_ffn_dim": 2 * shape.hidden,
            "decoder_attention_heads": 4,
            "activation_function": "gelu",
            "scale_embedding": True,
            "tie_word_embeddings": shape.tied,
            "bos_token_id": TOKEN_IDS["<s>"],
            "pad_token_id": TOKEN_IDS["<pad>"],
            "eos_token_id": TOKEN_IDS["</s>"],
        },
    }
