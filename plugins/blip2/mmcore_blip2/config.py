"""Reads ``config.json``. Sparse files rely on the defaults of their parts."""

from __future__ import annotations

from typing import Any

from mmcore.decoder_config import DecoderConfig, LearnedPositions, RelativeBias
from mmcore.errors import CheckpointError, UnsupportedOptionError
from mmcore.parts.fields import Json, activation_of, need
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
    return _t5(text, tied_head=tied_head) if text["model_type"] == "t5" else _opt(text)


def vision_encoder(config: Json, width: int) -> Blip2Encoder:
    vision = vision_part(config)
    former = {**_QFORMER, **(config.get("qformer_config") or {})}
    _only(vision, {"qkv_bias": True}, "vision_config")
    _only(former, {"use_qformer_text_input": False}, "qformer_config")
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
    hidden, heads = text["hidden_size"], text["num_attention_heads"]
    _only(text, _OPT_BUILT | {"word_embed_proj_dim": hidden, "tie_word_embeddings": True}, "text_config")
    length = text["max_position_embeddings"]
    return DecoderConfig(
        vocab_size=text["vocab_size"],
        hidden_size=hidden,
        num_layers=text["num_hidden_layers"],
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=hidden // heads,
        intermediate_size=text["ffn_dim"],
        positions=LearnedPositions(length + 2, offset=2),
        max_length=length,
        norm="layer",
        norm_eps=1e-5,
        activation=activation_of(text["activation_function"]),
        gated=False,
        q_bias=True,
        k_bias=True,
        v_bias=True,
        out_bias=True,
        mlp_bias=True,
        final_norm=not text.get("_remove_final_layer_norm", False),
        tied_head=True,
    )


def _t5(text: Json, *, tied_head: bool) -> DecoderConfig:
    """Files of T5 1.1 and later say that the head is not tied: what goes into it is then not scaled."""
    scaled = text.get("scale_decoder_outputs", text.get("tie_word_embeddings") is not False)
    width, layers = text["d_model"], text.get("num_decoder_layers")
    return DecoderConfig(
        vocab_size=text["vocab_size"],
        hidden_size=width,
        num_layers=text["num_layers"] if layers is None else layers,
        num_heads=text["num_heads"],
        num_kv_heads=text["num_heads"],
        head_dim=text["d_kv"],
        intermediate_size=text["d_ff"],
        positions=RelativeBias(
            text["relative_attention_num_buckets"], text["relative_attention_max_distance"]
        ),
        max_length=text["n_positions"],
        norm_eps=text["layer_norm_epsilon"],
        activation=activation_of(_t5_activation(text)),
        attention_scale=1.0,
        cross_attention=True,
        cross_width=width,
        tied_head=tied_head,
        head_scale=width**-0.5 if scaled else 1.0,
    )


def _t5_activation(text: Json) -> str:
    """``dense_act_fn`` overrides: published BLIP-2 files ask for the exact GELU, FLAN-T5's own for tanh."""
    if not text["feed_forward_proj"].startswith("gated-"):
        raise UnsupportedOptionError("config.json: a T5 without gated MLPs (feed_forward_proj) is not built")
    name = text["feed_forward_proj"].removeprefix("gated-")
    return str(text.get("dense_act_fn") or ("gelu_new" if name == "gelu" else name))


def _only(part: Json, built: Json, where: str) -> None:
    """Raises `UnsupportedOptionError` for a field that is there with another value."""
    for name, value in built.items():
        if part.get(name, value) not in (value, None):
            raise UnsupportedOptionError(
                f"config.json: {where}.{name} {part[name]!r} is not built, {value!r} is"
            )
