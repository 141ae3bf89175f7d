"""Tiny random checkpoints of each generation, with the files and names of the published ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from mmcore.testing.tiny import byte_tokenizer, fill_checkpoint
from mmcore_llava.adapter import LlavaAdapter

SPECIAL_TOKENS = ("<s>", "</s>", "<image>", "<video>", "<|im_start|>", "<|im_end|>")
TOKEN_IDS = {token: 256 + n for n, token in enumerate(SPECIAL_TOKENS)}
Variant = Literal["1.5", "next", "onevision"]
VARIANTS: tuple[Variant, ...] = ("1.5", "next", "onevision")

VICUNA_TEMPLATE = (
    "{% for message in messages %}{{ message['role'].upper() + ': ' }}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}{{ '<image>\\n' }}{% endif %}"
    "{% endfor %}"
    "{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] + ' ' }}{% endif %}"
    "{% endfor %}{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)
CHATML_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + ' ' }}"
    "{% for part in message['content'] %}{% if part['type'] != 'text' %}{{ '<' + part['type'] + '>\\n' }}"
    "{% endif %}{% endfor %}{% for part in message['content'] %}{% if part['type'] == 'text' %}"
    "{{ '\\n' + part['text'] }}{% endif %}{% endfor %}{{ '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyShape:
    """Sizes of a tiny checkpoint: two layers, a tower of three blocks over tiles of 4 x 4 patches."""

    hidden: int = 48
    layers: int = 2
    heads: int = 4
    intermediate: int = 64
    vision_width: int = 32
    vision_layers: int = 3
    patch: int = 6
    image: int = 24
    max_length: int = 2048
    shards: int = 1


def write_tiny_checkpoint(
    folder: Path | str, variant: Variant = "1.5", seed: int = 0, **overrides: Any
) -> Path:
    """Write the checkpoint and give its folder. ``overrides`` are fields of `TinyShape`."""
    shape = replace(TinyShape(), **overrides)
    onevision = variant == "onevision"
    files = {
        "config.json": config(shape, variant),
        "generation_config.json": {"eos_token_id": TOKEN_IDS["<|im_end|>" if onevision else "</s>"]},
        "preprocessor_config.json": _preprocessor(shape, variant),
        "tokenizer.json": byte_tokenizer(SPECIAL_TOKENS),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": None if onevision else "<s>",
            "eos_token": "<|im_end|>" if onevision else "</s>",
        },
        "chat_template.json": {"chat_template": CHATML_TEMPLATE if onevision else VICUNA_TEMPLATE},
    }
    patches = "vision_tower.vision_model.embeddings.patch_embedding.weight"
    convolution = {patches: (shape.vision_width, 3, shape.patch, shape.patch)}
    gains = {"q_proj.weight": 4.0, "linear_2.weight": 2.0}
    return fill_checkpoint(
        Path(folder), LlavaAdapter(), files, seed=seed, shapes=convolution, gains=gains, shards=shape.shards
    )


def config(shape: TinyShape, variant: Variant) -> dict[str, Any]:
    """``config.json``."""
    names = {"1.5": "Llava", "next": "LlavaNext", "onevision": "LlavaOnevision"}
    kinds = {"1.5": "llava", "next": "llava_next", "onevision": "llava_onevision"}
    side = shape.image
    # The last two are as large as a map may be before it is scaled down, and larger.
    pinpoints = [[side, 2 * side], [2 * side, side], [2 * side, 2 * side], [3 * side, side], [side, 3 * side]]
    onevision = [[a * side, b * side] for a in range(1, 5) for b in range(1, 5)]
    tiled = {"image_grid_pinpoints": onevision if variant == "onevision" else pinpoints}
    return {
        "architectures": [f"{names[variant]}ForConditionalGeneration"],
        "model_type": kinds[variant],
        "image_token_index": TOKEN_IDS["<image>"],
        "projector_hidden_act": "gelu",
        "vision_feature_layer": -1 if variant == "onevision" else -2,
        "vision_feature_select_strategy": "full" if variant == "onevision" else "default",
        "tie_word_embeddings": variant == "onevision",
        "text_config": _text_config(shape, variant),
        "vision_config": _vision_config(shape, variant),
        **({} if variant == "1.5" else tiled),
        **(
            {"video_token_index": TOKEN_IDS["<video>"], "vision_aspect_ratio": "anyres_max_4"}
            if variant == "onevision"
            else {}
        ),
    }


def _text_config(shape: TinyShape, variant: Variant) -> dict[str, Any]:
    kind = {"1.5": "llama", "next": "mistral", "onevision": "qwen2"}[variant]
    return {
        "model_type": kind,
        "vocab_size": 256 + len(SPECIAL_TOKENS),
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads if kind == "llama" else shape.heads // 2,
        "max_position_embeddings": shape.max_length,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0 if kind == "llama" else 1_000_000.0,
        **({"sliding_window": None} if kind == "mistral" else {}),
        **({"tie_word_embeddings": True} if kind == "qwen2" else {}),
    }


def _vision_config(shape: TinyShape, variant: Variant) -> dict[str, Any]:
    siglip = variant == "onevision"
    return {
        "model_type": "siglip_vision_model" if siglip else "clip_vision_model",
        "hidden_size": shape.vision_width,
        "intermediate_size": 2 * shape.vision_width,
        "num_hidden_layers": shape.vision_layers,
        "num_attention_heads": 2,
        # A tower without a class token leaves the rim beyond its last whole patch out.
        "image_size": shape.image,
        "patch_size": shape.patch,
        **({"vision_use_head": False} if siglip else {}),
    }


def _preprocessor(shape: TinyShape, variant: Variant) -> dict[str, Any]:
    side = {"height": shape.image, "width": shape.image}
    settings = config(shape, variant)
    common = {"resample": 3, "do_resize": True, "do_rescale": True, "do_normalize": True}
    if variant == "onevision":
        half = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
        pinpoints = {"image_grid_pinpoints": settings["image_grid_pinpoints"], "do_pad": True}
        kind = {"image_processor_type": "LlavaOnevisionImageProcessor", "size": side}
        return {**kind, **common, **half, **pinpoints}
    clip = {
        "size": {"shortest_edge": shape.image},
        "crop_size": side,
        "do_center_crop": True,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
    }
    if variant == "1.5":
        return {"image_processor_type": "CLIPImageProcessor", **common, **clip}
    pinpoints = {"image_grid_pinpoints": settings["image_grid_pinpoints"], "do_pad": True}
    return {"image_processor_type": "LlavaNextImageProcessor", **common, **clip, **pinpoints}
