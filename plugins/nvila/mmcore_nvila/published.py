"""``config.json`` of published checkpoints: the fields that say what is built."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_SIGLIP = {
    "model_type": "siglip_vision_model",
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "layer_norm_eps": 1e-06,
    "num_attention_heads": 16,
    "num_channels": 3,
    "num_hidden_layers": 27,
    "patch_size": 14,
}
_FOLDER = {
    "architectures": ["LlavaLlamaModel"],
    "chat_template": None,
    "interpolate_mode": "linear",
    "mm_vision_select_feature": "cls_patch",
    "mm_vision_select_layer": -2,
    "model_dtype": "torch.bfloat16",
    "model_type": "llava_llama",
    "num_video_frames": 8,
    "s2": False,
    "vision_resolution": -1,
}


def _llama(hidden: int, layers: int, heads: int, kv_heads: int, intermediate: int, **others: Any) -> Json:
    sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}
    sizes |= {"num_key_value_heads": kv_heads, "intermediate_size": intermediate}
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "hidden_act": "silu",
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "vocab_size": 32000,
        **sizes,
        **others,
    }


def _qwen2(hidden: int, layers: int, heads: int, kv_heads: int, intermediate: int, **others: Any) -> Json:
    qwen = {
        "model_type": "qwen2",
        "architectures": ["Qwen2ForCausalLM"],
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "sliding_window": None,
        "use_sliding_window": False,
        "vocab_size": 151648,
    }
    return _llama(hidden, layers, heads, kv_heads, intermediate, **qwen, **others)


def _folder(text: Json, projector: str, image: int, **others: Any) -> Json:
    tower = {"architectures": ["SiglipVisionModel"], **_SIGLIP, "image_size": image}
    part = {
        "architectures": ["MultimodalProjector"],
        "model_type": "v2l_projector",
        "mm_projector_type": projector,
    }
    parts = {"llm_cfg": text, "vision_tower_cfg": tower, "mm_projector_cfg": part}
    return {**_FOLDER, "hidden_size": text["hidden_size"], "mm_hidden_size": 1152, **parts, **others}


def _vila(text: Json) -> Json:
    found = _folder(text, "mlp_downsample", 384, image_aspect_ratio="resize")
    return {**found, "s2_scales": "336,672,1008", "s2_max_split_size": 336}


def _scaled(text: Json) -> Json:
    scales = {"s2_scales": "448,896,1344", "s2_max_split_size": 448, "s2_resize_output_to_scale_idx": -1}
    tiling = {"dynamic_s2": True, "image_aspect_ratio": "dynamic_s2", "mm_hidden_size": 3456}
    return _folder(text, "mlp_downsample", 448, **tiling, **scales)


def _lite(text: Json) -> Json:
    tiling = {"image_aspect_ratio": "dynamic", "min_tiles": 1, "max_tiles": 12}
    return _folder(text, "mlp_downsample_3x3_fix", 448, **tiling)


def _forty(text: Json) -> Json:
    """Its tower has a class token and learned scales; the preprocessor's file holds nothing but its name."""
    tower = {
        "architectures": ["InternVisionModel"],
        "model_type": "intern_vit_6b",
        "hidden_act": "gelu",
        "hidden_size": 3200,
        "image_size": 448,
        "intermediate_size": 12800,
        "layer_norm_eps": 1e-06,
        "num_attention_heads": 25,
        "num_hidden_layers": 45,
        "patch_size": 14,
        "qk_normalization": True,
        "qkv_bias": False,
    }
    rows = {"mm_vision_select_feature": "patch", "mm_vision_select_layer": -1, "mm_hidden_size": 3200}
    return {**_vila(text), "vision_tower_cfg": tower, **rows}


def _flat(model_type: str, name: str, text: Json) -> Json:
    return {
        "architectures": [f"{name}ForConditionalGeneration"],
        "model_type": model_type,
        "image_token_id": 151649,
        "video_token_id": 151650,
        "text_config": text,
        "vision_config": {**_SIGLIP, "image_size": 448},
    }


_QWEN_1_5B = {**_qwen2(1536, 28, 12, 2, 8960), "tie_word_embeddings": True}
_QWEN_7B = _qwen2(3584, 28, 28, 4, 18944)
_QWEN_14B = _qwen2(5120, 48, 40, 8, 13824)
PUBLISHED: dict[str, Json] = {
    "NVILA-8B": _scaled(_QWEN_7B),
    "NVILA-15B": _scaled(_QWEN_14B),
    "NVILA-Lite-2B": _lite(_QWEN_1_5B),
    "NVILA-Lite-8B": _lite(_QWEN_7B),
    "NVILA-8B-hf": _flat("nvila", "NVILA", _QWEN_7B),
    "NVILA-Lite-2B-hf": _flat("nvila_lite", "NVILALite", _QWEN_1_5B),
    "VILA1.5-3b": _vila(_llama(2560, 32, 20, 20, 6912)),
    "Llama-3-VILA1.5-8b": _vila(
        _llama(4096, 32, 32, 8, 14336, vocab_size=128256, rope_theta=500000.0, max_position_embeddings=8192)
    ),
    "VILA1.5-13b": _vila(_llama(5120, 40, 40, 40, 13824)),
    "VILA1.5-40b": _forty(_llama(7168, 60, 56, 8, 20480, vocab_size=64000, rope_theta=5000000.0)),
}


def published_files(config: Json) -> dict[str, Json]:
    """Its other JSON files, by name."""
    flat = "vision_config" in config
    if not flat and config["vision_tower_cfg"]["model_type"] == "intern_vit_6b":
        return {"vision_tower/preprocessor_config.json": {"image_processor_type": "InternVisionPreprocessor"}}
    side = (config["vision_config"] if flat else config["vision_tower_cfg"])["image_size"]
    half = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "resample": 3}
    folder = "" if flat else "vision_tower/"
    return {f"{folder}preprocessor_config.json": {"size": {"height": side, "width": side}, **half}}
