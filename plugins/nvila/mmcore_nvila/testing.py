"""Tiny random checkpoints of each layout, with the files and names of the published ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mmcore.testing.tiny import byte_tokenizer, fill_checkpoint
from mmcore_nvila.adapter import NvilaAdapter

SPECIAL_TOKENS = ("<s>", "</s>", "<|im_start|>", "<|im_end|>", "<vila/sentinel>", "<image>", "<vila/video>")
LLAMA_3_TOKENS = (
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
)
VICUNA_TOKENS = ("<s>", "</s>")
HERMES_TOKENS = ("<s>", "</s>", "<|im_start|>", "<|im_end|>")
FOLDERS = ("llm", "vision_tower", "mm_projector")
TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nYou are a helpful assistant<|im_end|>\\n' }}{% endif %}"
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyShape:
    """Sizes of a tiny checkpoint: two layers, a tower of three blocks over tiles of ``side`` x ``side``
    patches. Placeholder ids lie beyond the embedding."""

    model_type: str = "llava_llama"
    flat: bool = False
    kind: str = "qwen2"
    tiling: str = "dynamic_s2"
    projector: str = "mlp_downsample"
    chat_template: str | None = None
    tower: str = "siglip_vision_model"
    tokens: tuple[str, ...] = SPECIAL_TOKENS
    hidden: int = 48
    layers: int = 2
    heads: int = 4
    intermediate: int = 64
    vision_width: int = 32
    vision_layers: int = 3
    patch: int = 4
    side: int = 4
    max_length: int = 2048

    @property
    def image(self) -> int:
        """A rim of less than a patch is left out."""
        return self.patch * self.side + 2

    @property
    def vocab_size(self) -> int:
        """Without the placeholders."""
        return 256 + len([token for token in self.tokens if token not in ("<image>", "<vila/video>")])


_VICUNA = TinyShape(kind="llama", tiling="resize", tokens=VICUNA_TOKENS, side=5)
VARIANTS = {
    "nvila": TinyShape(),
    "nvila-lite": TinyShape(tiling="dynamic", projector="mlp_downsample_3x3_fix", side=5),
    "vila1.5": _VICUNA,
    "nvila-flat": TinyShape(flat=True, model_type="nvila", side=3),
    "nvila-lite-flat": TinyShape(
        flat=True, model_type="nvila_lite", tiling="dynamic", projector="mlp_downsample_3x3_fix"
    ),
    "vila": TinyShape(
        model_type="vila", tiling="dynamic", projector="mlp_downsample_2x2_fix", chat_template="qwen2"
    ),
    "vila1.5-8b": replace(_VICUNA, tokens=LLAMA_3_TOKENS),
    "vila1.5-40b": replace(_VICUNA, tokens=HERMES_TOKENS, tower="intern_vit_6b"),
}


def write_tiny_checkpoint(
    folder: Path | str, variant: str = "nvila", seed: int = 0, **overrides: Any
) -> Path:
    """Write the checkpoint and give its folder. ``overrides`` are fields of `TinyShape`."""
    shape = replace(VARIANTS[variant], **overrides)
    text, vision = ("", "") if shape.flat else ("llm/", "vision_tower/")
    files = {
        "config.json": config(shape),
        f"{text}generation_config.json": {"eos_token_id": 256 + _end(shape)},
        f"{text}tokenizer.json": byte_tokenizer(shape.tokens),
        f"{text}tokenizer_config.json": _tokenizer_config(shape),
        f"{vision}preprocessor_config.json": _preprocessor(shape),
    }
    gains = {"q_proj.weight": 4.0, "mm_projector": 3.0}
    folders = () if shape.flat else FOLDERS
    return fill_checkpoint(
        Path(folder), NvilaAdapter(), files, seed=seed, shapes=_tables(shape), gains=gains, folders=folders
    )


def _tables(shape: TinyShape) -> dict[str, tuple[int, ...]]:
    """Tensors of the tower that are stored otherwise than their parameters."""
    width, top = shape.vision_width, "vision_tower.vision_model.embeddings."
    convolution = (width, 3, shape.patch, shape.patch)
    if shape.tower == "siglip_vision_model":
        return {f"{top}patch_embedding.weight": convolution}
    top = "vision_tower.embeddings."
    return {
        f"{top}patch_embedding.weight": convolution,
        f"{top}class_embedding": (1, 1, width),
        f"{top}position_embedding": (1, shape.side**2 + 1, width),
    }


def _end(shape: TinyShape) -> int:
    ends = [token for token in ("<|im_end|>", "<|eot_id|>", "</s>") if token in shape.tokens]
    return shape.tokens.index(ends[0])


def _tokenizer_config(shape: TinyShape) -> dict[str, Any]:
    own = {"chat_template": TEMPLATE} if shape.kind == "qwen2" else {}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": shape.tokens[0] if shape.kind == "llama" else None,
        "eos_token": shape.tokens[_end(shape)],
        **({"add_bos_token": False} if shape.tokens == HERMES_TOKENS else {}),
        **own,
    }


def config(shape: TinyShape) -> dict[str, Any]:
    """``config.json``."""
    text, vision = _text_config(shape), _vision_config(shape)
    if shape.flat:
        lite = shape.model_type == "nvila_lite"
        ids = {"image_token_id": shape.vocab_size, "video_token_id": shape.vocab_size + 1}
        names = {"architectures": [f"NVILA{'Lite' if lite else ''}ForConditionalGeneration"]}
        return {**names, "model_type": shape.model_type, "text_config": text, "vision_config": vision, **ids}
    scaled = {"dynamic_s2": True, "s2_scales": f"{shape.image},{2 * shape.image},{3 * shape.image}"}
    return {
        "architectures": ["VILAForCasualLM" if shape.model_type == "vila" else "LlavaLlamaModel"],
        "model_type": shape.model_type,
        "chat_template": shape.chat_template,
        "image_aspect_ratio": shape.tiling,
        "llm_cfg": text,
        "vision_tower_cfg": vision,
        "mm_projector_cfg": {"model_type": "v2l_projector", "mm_projector_type": shape.projector},
        "mm_vision_select_feature": "patch" if shape.tower == "intern_vit_6b" else "cls_patch",
        "mm_vision_select_layer": -1 if shape.tower == "intern_vit_6b" else -2,
        "min_tiles": 1,
        "max_tiles": 12 if shape.tiling == "dynamic_s2" else 6,
        "num_video_frames": 4,
        **(scaled if shape.tiling == "dynamic_s2" else {}),
    }


def _text_config(shape: TinyShape) -> dict[str, Any]:
    return {
        "model_type": shape.kind,
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads // 2 if shape.kind == "qwen2" else shape.heads,
        "max_position_embeddings": shape.max_length,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0 if shape.kind == "qwen2" else 10_000.0,
        "tie_word_embeddings": shape.kind == "qwen2" and shape.tiling == "dynamic",
    }


def _vision_config(shape: TinyShape) -> dict[str, Any]:
    sizes = {
        "hidden_size": shape.vision_width,
        "intermediate_size": 2 * shape.vision_width,
        "num_hidden_layers": shape.vision_layers,
        "num_attention_heads": 2,
        "image_size": shape.image,
        "patch_size": shape.patch,
    }
    own: dict[str, Any] = {"vision_use_head": False}
    if shape.tower == "intern_vit_6b":
        own = {"hidden_act": "gelu", "layer_norm_eps": 1e-6, "qkv_bias": False, "qk_normalization": True}
    return {"model_type": shape.tower, **sizes, **own}


def _preprocessor(shape: TinyShape) -> dict[str, Any]:
    if shape.tower == "intern_vit_6b":
        return {"image_processor_type": "InternVisionPreprocessor"}
    return {
        "image_processor_type": "SiglipImageProcessor",
        "size": {"height": shape.image, "width": shape.image},
        "resample": 3,
        "do_resize": True,
        "do_rescale": True,
        "do_normalize": True,
        "rescale_factor": 1 / 255,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
