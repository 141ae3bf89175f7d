"""Checkpoint folders of published shapes without their weights: what ``load_format="dummy"`` needs.

Sizes are those of the models' config.json on the hub. Tokenizers are byte-level: a letter is a token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mmcore_llava.testing
import mmcore_qwen2vl.testing
import mmcore_whisper.testing
import numpy as np
from mmcore_whisper.hub_files import hub_files

from mmcore.testing.tiny import byte_tokenizer, save_checkpoint

Files = Mapping[str, Any]
CLIP_MEAN = [0.48145466, 0.4578275, 0.40821073]
CLIP_STD = [0.26862954, 0.26130258, 0.27577711]
PLAIN_TEMPLATE = (
    "{%- for message in messages -%}<|im_start|>{%- for part in message['content'] -%}"
    "{%- if part['type'] == 'image' -%}<|vision_start|><|image_pad|><|vision_end|>"
    "{%- elif 'text' in part -%}{{- part['text'] -}}{%- endif -%}{%- endfor -%}<|im_end|>\n{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|im_start|>{%- endif -%}"
)
"""Few tokens before the picture, as with the published tokenizer: no block is shared by the template."""


def qwen2_vl_7b() -> Files:
    ids = mmcore_qwen2vl.testing.TOKEN_IDS
    vision = {
        "depth": 32, "embed_dim": 1280, "num_heads": 16, "mlp_ratio": 4, "hidden_size": 3584,
        "in_channels": 3, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
    }  # fmt: skip
    config = {
        "architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl",
        "vocab_size": 152_064, "hidden_size": 3584, "intermediate_size": 18_944, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-6, "hidden_act": "silu", "use_sliding_window": False, "tie_word_embeddings": False,
        "rope_theta": 1e6, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
        "bos_token_id": ids["<|endoftext|>"], "eos_token_id": ids["<|im_end|>"], "vision_config": vision,
        **{f"{name}_token_id": ids[f"<|{name}_pad|>"] for name in ("image", "video")},
        **{f"{name}_token_id": ids[f"<|{name}|>"] for name in ("vision_start", "vision_end")},
    }  # fmt: skip
    pictures = {
        "image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 3136, "max_pixels": 12_845_056,
        "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2,
        "image_mean": CLIP_MEAN, "image_std": CLIP_STD,
    }  # fmt: skip
    return {
        "config.json": config,
        "generation_config.json": {"eos_token_id": ids["<|im_end|>"]},
        "preprocessor_config.json": pictures,
        "tokenizer.json": byte_tokenizer(mmcore_qwen2vl.testing.SPECIAL_TOKENS),
        "tokenizer_config.json": {"tokenizer_class": "Qwen2Tokenizer", "chat_template": PLAIN_TEMPLATE},
    }


def llava_7b() -> Files:
    ids = mmcore_llava.testing.TOKEN_IDS
    text = {
        "model_type": "llama", "vocab_size": 32_064, "hidden_size": 4096, "intermediate_size": 11_008,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "hidden_act": "silu", "rope_theta": 10_000.0,
    }  # fmt: skip
    vision = {
        "model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096,
        "num_hidden_layers": 24, "num_attention_heads": 16, "image_size": 336, "patch_size": 14,
        "projection_dim": 768, "vocab_size": 32_000, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5,
    }  # fmt: skip
    config = {
        "architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "text_config": text,
        "vision_config": vision, "image_token_index": ids["<image>"], "projector_hidden_act": "gelu",
        "vision_feature_layer": -2, "vision_feature_select_strategy": "default", "tie_word_embeddings": False,
    }  # fmt: skip
    pictures = {
        "image_processor_type": "CLIPImageProcessor", "do_center_crop": True, "do_resize": True,
        "crop_size": {"height": 336, "width": 336}, "size": {"shortest_edge": 336}, "resample": 3,
        "do_normalize": True, "image_mean": CLIP_MEAN, "image_std": CLIP_STD, "rescale_factor": 1 / 255,
    }  # fmt: skip
    return {
        "config.json": config,
        "generation_config.json": {"eos_token_id": ids["</s>"]},
        "preprocessor_config.json": pictures,
        "processor_config.json": {"patch_size": 14, "vision_feature_select_strategy": "default"},
        "tokenizer.json": byte_tokenizer(mmcore_llava.testing.SPECIAL_TOKENS),
        "tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer", "eos_token": "</s>"},
        "chat_template.json": {"chat_template": mmcore_llava.testing.VICUNA_TEMPLATE},
    }


def whisper_large_v3() -> Files:
    shape = mmcore_whisper.testing.TinyShape(
        width=1280, heads=20, encoder_layers=32, decoder_layers=32, intermediate=5120, mels=128, rows=1500,
        max_length=448,
    )  # fmt: skip
    shapes = mmcore_whisper.testing.tensor_shapes(shape, vocab=51_866)
    tokenizer = mmcore_whisper.testing.tiny_tokenizer("multilingual", 1500)
    stored = {"suppress_ids": list(range(1, 177, 2)), "suppress_ids_begin": [220, 256], "alignment_heads": []}
    nothing = np.zeros((), np.float32)
    files = hub_files(
        {name: np.broadcast_to(nothing, size) for name, size in shapes.items()},
        tokenizer,
        stored,
        heads={"encoder": 20, "decoder": 20},
        multilingual=True,
    )
    return {**files, "tokenizer.json": tokenizer}


SHAPES: Mapping[str, Callable[[], Files]] = {"A": qwen2_vl_7b, "B": llava_7b, "C": whisper_large_v3}


def write_shape(name: str, folder: Path) -> Path:
    """A folder with everything but weights; an empty weight file stands for them."""
    return save_checkpoint(folder, {}, SHAPES[name]())
