"""Writes a checkpoint as a hub folder: fp16 weights, configuration, processor, tokenizer, template.

python export.py --checkpoint OUT --to READER
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from chat import END_OF_TEXT, IM_END, IMAGE_PAD, SPECIALS, VIDEO_PAD, VISION_END, VISION_START, VOCAB
from checkpoint import load_weights
from model import CONFIG, parameter_shapes
from safetensors.torch import save_file
from vision import MAX_PIXELS, MEAN, MIN_PIXELS, STD

# Qwen2-VL's own published chat template.
TEMPLATE = (
    "{% set image_count = namespace(value=0) %}{% set video_count = namespace(value=0) %}"
    "{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}"
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    "{% endif %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n"
    "{% else %}{% for content in message['content'] %}"
    "{% if content['type'] == 'image' or 'image' in content or 'image_url' in content %}"
    "{% set image_count.value = image_count.value + 1 %}"
    "{% if add_vision_id %}Picture {{ image_count.value }}: {% endif %}"
    "<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif content['type'] == 'video' or 'video' in content %}"
    "{% set video_count.value = video_count.value + 1 %}"
    "{% if add_vision_id %}Video {{ video_count.value }}: {% endif %}"
    "<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in content %}{{ content['text'] }}{% endif %}"
    "{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_characters() -> list[str]:
    """The printable character that byte-level BPE writes for each of the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(rest)) for b in range(256)]


def model_config() -> dict[str, Any]:
    """config.json, flat as the hub's Qwen2-VL checkpoints have it."""
    c = CONFIG
    return {
        "architectures": ["Qwen2VLForConditionalGeneration"],
        "model_type": "qwen2_vl",
        "attention_dropout": 0.0,
        "bos_token_id": END_OF_TEXT,
        "eos_token_id": IM_END,
        "pad_token_id": END_OF_TEXT,
        "vision_start_token_id": VISION_START,
        "vision_end_token_id": VISION_END,
        "vision_token_id": VISION_END + 1,
        "image_token_id": IMAGE_PAD,
        "video_token_id": VIDEO_PAD,
        "hidden_act": "silu",
        "hidden_size": c.hidden,
        "initializer_range": 0.02,
        "intermediate_size": c.intermediate,
        "max_position_embeddings": 4096,
        "max_window_layers": c.layers,
        "num_attention_heads": c.heads,
        "num_hidden_layers": c.layers,
        "num_key_value_heads": c.kv_heads,
        "rms_norm_eps": c.eps,
        "rope_theta": c.theta,
        "sliding_window": None,
        "tie_word_embeddings": True,
        "torch_dtype": "float16",
        "use_cache": True,
        "use_sliding_window": False,
        "vision_config": {
            "model_type": "qwen2_vl",
            "depth": c.depth,
            "embed_dim": c.embed_dim,
            "mlp_ratio": 4,
            "hidden_act": "quick_gelu",
            "num_heads": c.vision_heads,
            "in_chans": 3,
            "in_channels": 3,
            "hidden_size": c.hidden,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "spatial_patch_size": 14,
            "temporal_patch_size": 2,
        },
        "rope_scaling": {"type": "mrope", "mrope_section": list(c.mrope_section)},
        "vocab_size": VOCAB,
    }


def processor_config() -> dict[str, Any]:
    """preprocessor_config.json."""
    return {
        "min_pixels": MIN_PIXELS,
        "max_pixels": MAX_PIXELS,
        "patch_size": 14,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": list(MEAN),
        "image_std": list(STD),
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": "Qwen2VLProcessor",
    }


def _added(content: str, number: int) -> dict[str, Any]:
    return {
        "id": number,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


def tokenizer_json() -> dict[str, Any]:
    """tokenizer.json: byte-level BPE without merges; the id of a byte is its value."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Isolated", "invert": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(token, 256 + i) for i, token in enumerate(SPECIALS)],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {char: b for b, char in enumerate(byte_characters())},
            "merges": [],
        },
    }


def tokenizer_config() -> dict[str, Any]:
    """tokenizer_config.json."""
    decoder = {}
    for i, token in enumerate(SPECIALS):
        decoder[str(256 + i)] = {k: v for k, v in _added(token, 0).items() if k != "id"}
    return {
        "add_prefix_space": False,
        "added_tokens_decoder": decoder,
        "additional_special_tokens": list(SPECIALS[1:]),
        "bos_token": None,
        "chat_template": TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": 4096,
        "pad_token": "<|endoftext|>",
        "padding_side": "left",
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }


def write_files(folder: Path) -> None:
    """Everything but the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, Any] = {
        "config.json": model_config(),
        "preprocessor_config.json": processor_config(),
        "tokenizer.json": tokenizer_json(),
        "tokenizer_config.json": tokenizer_config(),
        "chat_template.json": {"chat_template": TEMPLATE},
        "generation_config.json": {
            "bos_token_id": END_OF_TEXT,
            "eos_token_id": [IM_END, END_OF_TEXT],
            "pad_token_id": END_OF_TEXT,
            "do_sample": False,
            "max_new_tokens": 96,
        },
        "special_tokens_map.json": {
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "additional_special_tokens": list(SPECIALS[1:]),
        },
        "vocab.json": {char: b for b, char in enumerate(byte_characters())},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--to", type=Path, required=True)
    args = parser.parse_args()
    write_files(args.to)
    weights = load_weights(args.checkpoint)
    kept = {name: weights[name].to(torch.float16).contiguous() for name in parameter_shapes()}
    save_file(kept, args.to / "model.safetensors", metadata={"format": "pt"})
    print(f"{sum(t.numel() for t in kept.values()):,} parameters")


if __name__ == "__main__":
    main()
