"""A tiny random checkpoint of either generation, with the files and names of the published ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from mmcore.testing.tiny import Shape, byte_tokenizer, fan_in_weights, save_checkpoint
from mmcore_qwen2vl.processor import CLIP_MEAN, CLIP_STD
from mmcore_qwen2vl.template import CHAT_TEMPLATE

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
TOKEN_IDS = {token: 256 + n for n, token in enumerate(SPECIAL_TOKENS)}

Variant = Literal["2", "2.5"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyShape:
    """Sizes of a tiny checkpoint. Two layers with grouped heads, a tower of two blocks of head size 16."""

    hidden: int = 64
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    intermediate: int = 96
    vocab: int = 264
    depth: int = 2
    vision_width: int = 32
    vision_heads: int = 2
    vision_intermediate: int = 64
    min_pixels: int = 56 * 56
    max_pixels: int = 28 * 28 * 64
    max_length: int = 1024
    tied: bool = True
    nested: bool = False
    """``text_config`` and ``rope_parameters``, as transformers 5 writes them, instead of flat."""
    prefixed: bool = False
    """``model.language_model.*`` and ``model.visual.*`` instead of the published names."""
    shards: int = 1


def write_tiny_checkpoint(
    folder: Path | str, variant: Variant = "2", seed: int = 0, **overrides: Any
) -> Path:
    """Write the checkpoint and give its folder. ``overrides`` are fields of `TinyShape`."""
    shape = replace(TinyShape(), **overrides)
    weights = fan_in_weights(tensor_shapes(shape, variant), seed, {"q_proj.weight": 5.0})
    files = {
        "config.json": config(shape, variant),
        "generation_config.json": {
            "eos_token_id": [TOKEN_IDS["<|im_end|>"], TOKEN_IDS["<|endoftext|>"]],
            "pad_token_id": TOKEN_IDS["<|endoftext|>"],
        },
        "preprocessor_config.json": _preprocessor(shape),
        "tokenizer.json": byte_tokenizer(SPECIAL_TOKENS),
        "tokenizer_config.json": {
            "tokenizer_class": "Qwen2Tokenizer",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "chat_template": CHAT_TEMPLATE,
        },
    }
    return save_checkpoint(Path(folder), weights, files, shards=shape.shards)


def config(shape: TinyShape, variant: Variant) -> dict[str, Any]:
    """``config.json``."""
    number = "2" if variant == "2" else "2_5"
    ids = {f"{name}_token_id": TOKEN_IDS[f"<|{name}|>"] for name in ("vision_start", "vision_end")}
    ids |= {f"{name}_token_id": TOKEN_IDS[f"<|{name}_pad|>"] for name in ("image", "video")}
    text = _text_config(shape)
    return {
        "architectures": [f"Qwen{number}VLForConditionalGeneration".replace("2_5VL", "2_5_VL")],
        "model_type": f"qwen{number}_vl",
        "tie_word_embeddings": shape.tied,
        "vision_config": _vision_config(shape, variant),
        **ids,
        **({"text_config": {"model_type": f"qwen{number}_vl_text", **text}} if shape.nested else text),
    }


def _text_config(shape: TinyShape) -> dict[str, Any]:
    half = shape.hidden // shape.heads // 2
    sections = [half - 2 * (3 * half // 8), 3 * half // 8, 3 * half // 8]
    scaling = {"type": "mrope", "mrope_section": sections}
    rope: dict[str, Any] = {"rope_theta": 1e6, "rope_scaling": scaling}
    if shape.nested:
        parameters = {"rope_type": "default", "mrope_section": sections, "rope_theta": 1e6}
        rope = {"rope_parameters": parameters}
    return {
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "max_position_embeddings": shape.max_length,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "use_sliding_window": False,
        "bos_token_id": TOKEN_IDS["<|endoftext|>"],
        "eos_token_id": TOKEN_IDS["<|im_end|>"],
        **rope,
    }


def _vision_config(shape: TinyShape, variant: Variant) -> dict[str, Any]:
    common = {
        "depth": shape.depth,
        "num_heads": shape.vision_heads,
        "in_channels": 3,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }
    if variant == "2":
        ratio = shape.vision_intermediate // shape.vision_width
        return common | {"embed_dim": shape.vision_width, "mlp_ratio": ratio, "hidden_size": shape.hidden}
    return common | {
        "hidden_size": shape.vision_width,
        "intermediate_size": shape.vision_intermediate,
        "out_hidden_size": shape.hidden,
        "window_size": 56,
        "fullatt_block_indexes": [shape.depth - 1],
        "tokens_per_second": 2,
    }


def _preprocessor(shape: TinyShape) -> dict[str, Any]:
    return {
        "image_processor_type": "Qwen2VLImageProcessor",
        "min_pixels": shape.min_pixels,
        "max_pixels": shape.max_pixels,
        "patch_size": 14,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": list(CLIP_MEAN),
        "image_std": list(CLIP_STD),
    }


def tensor_shapes(shape: TinyShape, variant: Variant) -> dict[str, Shape]:
    """Every tensor of the checkpoint and its shape."""
    text, vision = ("model.language_model", "model.visual") if shape.prefixed else ("model", "visual")
    shapes: dict[str, Shape] = {
        f"{text}.embed_tokens.weight": (shape.vocab, shape.hidden),
        f"{text}.norm.weight": (shape.hidden,),
        f"{vision}.patch_embed.proj.weight": (shape.vision_width, 3, 2, 14, 14),
    }
    for n in range(shape.layers):
        shapes |= _under(f"{text}.layers.{n}", _layer_shapes(shape))
    for n in range(shape.depth):
        shapes |= _under(f"{vision}.blocks.{n}", _block_shapes(shape, variant))
    shapes |= _under(f"{vision}.merger", _merger_shapes(shape, variant))
    return shapes if shape.tied else shapes | {"lm_head.weight": (shape.vocab, shape.hidden)}


def _layer_shapes(shape: TinyShape) -> dict[str, Shape]:
    hidden, kv = shape.hidden, shape.hidden // shape.heads * shape.kv_heads
    return {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        **_linear("self_attn.q_proj", hidden, hidden),
        **_linear("self_attn.k_proj", hidden, kv),
        **_linear("self_attn.v_proj", hidden, kv),
        "self_attn.o_proj.weight": (hidden, hidden),
        "mlp.gate_proj.weight": (shape.intermediate, hidden),
        "mlp.up_proj.weight": (shape.intermediate, hidden),
        "mlp.down_proj.weight": (hidden, shape.intermediate),
    }


def _block_shapes(shape: TinyShape, variant: Variant) -> dict[str, Shape]:
    width, inner = shape.vision_width, shape.vision_intermediate
    attention = _linear("attn.qkv", width, 3 * width) | _linear("attn.proj", width, width)
    if variant == "2":
        mlp = _linear("mlp.fc1", width, inner) | _linear("mlp.fc2", inner, width)
        return attention | mlp | _norm("norm1", width, variant) | _norm("norm2", width, variant)
    gated = _linear("mlp.gate_proj", width, inner) | _linear("mlp.up_proj", width, inner)
    mlp = gated | _linear("mlp.down_proj", inner, width)
    return attention | mlp | _norm("norm1", width, variant) | _norm("norm2", width, variant)


def _merger_shapes(shape: TinyShape, variant: Variant) -> dict[str, Shape]:
    merged = 4 * shape.vision_width
    ends = _linear("mlp.0", merged, merged) | _linear("mlp.2", merged, shape.hidden)
    return ends | _norm("ln_q", shape.vision_width, variant)


def _linear(name: str, inputs: int, outputs: int) -> dict[str, Shape]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _norm(name: str, width: int, variant: Variant) -> dict[str, Shape]:
    weight: dict[str, Shape] = {f"{name}.weight": (width,)}
    return weight | {f"{name}.bias": (width,)} if variant == "2" else weight


def _under(prefix: str, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    return {f"{prefix}.{name}": shape for name, shape in shapes.items()}
