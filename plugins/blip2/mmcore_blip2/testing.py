"""Tiny random checkpoints of both language models, with the files and names of the published ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from mmcore.testing.tiny import byte_tokenizer, fill_checkpoint
from mmcore_blip2.adapter import Blip2Adapter

SPECIAL_TOKENS = ("<pad>", "</s>", "<image>")
TOKEN_IDS = {token: 256 + n for n, token in enumerate(SPECIAL_TOKENS)}
VOCABULARY = 256 + len(SPECIAL_TOKENS)
Variant = Literal["opt", "t5"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyShape:
    """Sizes of a tiny checkpoint: two layers, three in the Q-Former, pictures of 3 x 3 patches."""

    hidden: int = 48
    layers: int = 2
    heads: int = 4
    intermediate: int = 64
    queries: int = 5
    patch: int = 6
    image: int = 18
    max_length: int = 512
    old: bool = False
    """As files were before they named the placeholder."""
    tied: bool = False
    """T5: one table for embedding and head, as in T5 1.0."""
    shards: int = 1


def write_tiny_checkpoint(
    folder: Path | str, variant: Variant = "opt", seed: int = 0, **overrides: Any
) -> Path:
    """Write the checkpoint and give its folder. ``overrides`` are fields of `TinyShape`."""
    shape = replace(TinyShape(), **overrides)
    specials = SPECIAL_TOKENS[:-1] if shape.old else SPECIAL_TOKENS
    files = {
        "config.json": config(shape, variant),
        "generation_config.json": {"eos_token_id": TOKEN_IDS["</s>"], "pad_token_id": TOKEN_IDS["<pad>"]},
        "preprocessor_config.json": {
            "image_processor_type": "BlipImageProcessor",
            "size": {"height": shape.image, "width": shape.image},
            "resample": 3,
            "image_mean": [0.48145466, 0.4578275, 0.40821073],
            "image_std": [0.26862954, 0.26130258, 0.27577711],
        },
        "tokenizer.json": byte_tokenizer(specials),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "</s>",
            "eos_token": "</s>",
            "pad_token": "<pad>",
        },
    }
    tower = "vision_model.embeddings."
    shapes = {
        f"{tower}patch_embedding.weight": (32, 3, shape.patch, shape.patch),
        f"{tower}class_embedding": (1, 1, 32),
        f"{tower}position_embedding": (1, (shape.image // shape.patch) ** 2 + 1, 32),
        "query_tokens": (1, shape.queries, 24),
    }
    gains = {"q_proj.weight": 4.0, "language_projection.weight": 2.0, "relative_attention_bias": 2.0}
    return fill_checkpoint(
        Path(folder), Blip2Adapter(), files, seed=seed, shapes=shapes, gains=gains, shards=shape.shards
    )


def config(shape: TinyShape, variant: Variant) -> dict[str, Any]:
    """``config.json``."""
    common = {"hidden_act": "gelu", "num_attention_heads": 2}
    return {
        "architectures": ["Blip2ForConditionalGeneration"],
        "model_type": "blip-2",
        "num_query_tokens": shape.queries,
        **({} if shape.old else {"image_token_index": TOKEN_IDS["<image>"]}),
        "vision_config": {
            "model_type": "blip_2_vision_model",
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "image_size": shape.image,
            "patch_size": shape.patch,
            **common,
        },
        "qformer_config": {
            "model_type": "blip_2_qformer",
            "hidden_size": 24,
            "intermediate_size": 40,
            "num_hidden_layers": 3,
            "encoder_hidden_size": 32,
            **common,
        },
        "text_config": _opt(shape) if variant == "opt" else _t5(shape),
    }


def _opt(shape: TinyShape) -> dict[str, Any]:
    return {
        "model_type": "opt",
        "vocab_size": VOCABULARY,
        "hidden_size": shape.hidden,
        "word_embed_proj_dim": shape.hidden,
        "ffn_dim": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "max_position_embeddings": shape.max_length,
        "bos_token_id": TOKEN_IDS["</s>"],
        "eos_token_id": TOKEN_IDS["</s>"],
        "pad_token_id": TOKEN_IDS["<pad>"],
    }


def _t5(shape: TinyShape) -> dict[str, Any]:
    """Heads are together wider than the hidden size, as nothing forbids."""
    return {
        "model_type": "t5",
        "vocab_size": VOCABULARY,
        "d_model": shape.hidden,
        "d_kv": shape.hidden // shape.heads + 4,
        "d_ff": shape.intermediate,
        "num_layers": shape.layers,
        "num_decoder_layers": shape.layers,
        "num_heads": shape.heads,
        "n_positions": shape.max_length,
        "feed_forward_proj": "gated-gelu",
        "dense_act_fn": "gelu",
        "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 20,
        "tie_word_embeddings": shape.tied,
        "decoder_start_token_id": TOKEN_IDS["<pad>"],
        "bos_token_id": TOKEN_IDS["</s>"],
        "eos_token_id": TOKEN_IDS["</s>"],
        "pad_token_id": TOKEN_IDS["<pad>"],
    }
