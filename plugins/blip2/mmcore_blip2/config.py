"""Reads ``config.json``. Sparse files rely on the defaults of their parts."""

from __future__ import annotations

from typing import Any

from mmcore.decoder_config import DecoderConfig
from mmcore.errors import CheckpointError
from mmcore.parts.biased_decoder import biased_decoder
from mmcore.parts.fields import Json, activation_of, need, only_built
from mmcore.parts.learned_decoder import learned_decoder
from mmcore.parts.vit import vit_config
from mmcore_blip2.vision import Blip2Encoder, QFormerConfig


def _fields(text: str) -> dict[str, int]:
    pairs = (pair.split("=") for pair in text.split())
    return {name: int(value) for name, value in pairs}


_VISION: Json = {"hidden_act": "gelu", "layer_norm_eps": 1e-6, "qkv_bias": True} | _fields(
    "hidden_size=1408 intermediate_size=6144 num_hidden_layers=39 num_attention_heads=16"
    " image_size=224 patch_size=14"
)
_QFORMER: Json = {"hidden_act": "gelu", "layer_norm_eps": 1e-12, "use_qformer_text_input": False} | _fields(
    "hidden_size=768 intermediate_size=3072 num_hidden_layers=12 num_attention_heads=12"
    " cross_attention_frequency=2"
)
_OPT: Json = {"activation_function": "relu"} | _fields(
    "vocab_size=50272 hidden_size=768 num_hidden_layers=12 ffn_dim=3072 max_position_embeddings=2048"
    " num_attention_heads=12 bos_token_id=2 eos_token_id=2"
)
_T5: Json = {"layer_norm_epsilon": 1e-6, "feed_forward_proj": "relu"} | _fields(
    "vocab_size=32128 d_model=512 d_kv=64 d_ff=2048 num_layers=6 num_heads=8 n_positions=512 eos_token_id=1"
    " pad_token_id=0 relative_attention_num_buckets=32 relative_attention_max_distance=128"
)
_TEXT = {"opt": _OPT, "t5": _T5}
_OPT_BUILT = {"do_layer_norm_before": True, "enable_bias": True, "layer_norm_elementwise_affine": True}


def text_part(config: Json) -> dict[str, Any]:
    """``text_config`` with the defaults of its kind. Raises `CheckpointError` for another kind."""
    text = need(config, "text_config")
    kind = text.get("model_type", "opt")
    if kind not in _TEXT:
        raise CheckpointError(f"config.json: text model {kind!r} is none of {', '.join(_TEXT)}")
    return {"model_type": kind, **_TEXT[kind], **text}


def vision_part(config: Json) -> dict[str, Any]:
    return {**_VISION, **(config.get("vision_config") or {})}


def decoder_config(text: Json, *, tied_head: bool) -> DecoderConfig:
    return biased_decoder(text, tied_head=tied_head) if text["model_type"] == "t5" else _opt(text)


def vision_encoder(config: Json, width: int) -> Blip2Encoder:
    vision = vision_part(config)
    former = {**_QFORMER, **(config.get("qformer_config") or {})}
    only_built(vision, {"qkv_bias": True}, "vision_config")
    only_built(former, {"use_qformer_text_input": False}, "qformer_config")
    flags = {"class_token": True, "pre_norm": False, "post_norm": True, "patch_bias": True}
    return Blip2Encoder(
        vit=vit_config(vision, **flags),
        qformer=QFormerConfig(
            width=former["hidden_size"],
            layers=former["num_hidden_layers"],
            heads=former["num_attention_heads"],
            intermediate=former["intermediate_size"],
            activation=activation_of(former["hidden_act"]),
            norm_eps=former["layer_norm_eps"],
            cross_every=former["cross_attention_frequency"],
            queries=config.get("num_query_tokens", 32),
        ),
        width=width,
    )


def _opt(text: Json) -> DecoderConfig:
    same = {"word_embed_proj_dim": text["hidden_size"], "tie_word_embeddings": True}
    only_built(text, _OPT_BUILT | same, "text_config")
    return learned_decoder(text)
