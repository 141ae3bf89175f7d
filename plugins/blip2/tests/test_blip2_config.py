"""Configs of the published checkpoints, as they are on the hub, and those that are refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import transformers
from mmcore_blip2.adapter import Blip2Adapter
from mmcore_blip2.testing import TinyShape, config, write_tiny_checkpoint

from mmcore.adapter import Adapter
from mmcore.errors import CheckpointError, MMCoreError
from mmcore.inputs.checkpoint import Checkpoint
from mmcore.model.weights import build_model

SIZES_OPT = {
    "2.7b": {"hidden_size": 2560, "ffn_dim": 10240, "num_hidden_layers": 32, "num_attention_heads": 32},
    "6.7b": {"hidden_size": 4096, "ffn_dim": 16384, "num_hidden_layers": 32, "num_attention_heads": 32},
}
SIZES_T5 = {
    "xl": {"d_model": 2048, "d_ff": 5120, "num_heads": 32},
    "xxl": {"d_model": 4096, "d_ff": 10240, "num_heads": 64},
}


def opt(size: str, **more: Any) -> dict[str, Any]:
    text = {
        "model_type": "opt",
        "word_embed_proj_dim": SIZES_OPT[size]["hidden_size"],
        "eos_token_id": 50118,
        **SIZES_OPT[size],
    }
    return {"model_type": "blip-2", "num_query_tokens": 32, "text_config": text, **PARTS, **more}


def t5(size: str, **more: Any) -> dict[str, Any]:
    text = {
        "model_type": "t5",
        "d_kv": 64,
        "num_layers": 24,
        "num_decoder_layers": 24,
        "vocab_size": 32128,
        "n_positions": 512,
        "feed_forward_proj": "gated-gelu",
        "dense_act_fn": "gelu",
        "tie_word_embeddings": False,
        "decoder_start_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 1,
        **SIZES_T5[size],
    }
    return {"model_type": "blip-2", "num_query_tokens": 32, "text_config": text, **PARTS, **more}


PARTS = {
    "vision_config": {"model_type": "blip_2_vision_model"},
    "qformer_config": {"model_type": "blip_2_qformer"},
}
PUBLISHED = {
    "opt-2.7b": opt("2.7b"),
    "opt-2.7b, new": opt("2.7b", image_token_index=50265),
    "opt-6.7b": opt("6.7b"),
    "flan-t5-xl": t5("xl"),
    "flan-t5-xxl": t5("xxl", image_token_index=32100),
}


class NoTokens:
    def token_id(self, token: str) -> int | None:
        return None


@dataclass(frozen=True)
class NoFiles:
    """A checkpoint of which only the config is known."""

    tokenizer: NoTokens = field(default_factory=NoTokens)

    def json(self, name: str) -> dict[str, Any]:
        return {}


def adapter_of(settings: dict[str, Any]) -> Adapter:
    return Blip2Adapter.from_config(settings, NoFiles())  # type: ignore[arg-type]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configs_have_the_reference_s_parameters(name: str) -> None:
    """T5's head is the embedding in the reference as long as there is no file; published files hold both."""
    settings = PUBLISHED[name]
    adapter = adapter_of(settings)
    model = build_model(adapter, torch.bfloat16, torch.device("meta"))
    with torch.device("meta"):
        reference = transformers.Blip2ForConditionalGeneration(transformers.Blip2Config(**settings))
    head = 0 if adapter.decoder.tied_head else model.decoder.head.weight.numel()
    assert sum(p.numel() for p in model.parameters()) - head == reference.num_parameters()


def test_an_old_file_s_placeholder_lies_behind_the_vocabulary() -> None:
    assert [p.token_id for p in adapter_of(opt("2.7b")).placeholders] == [50272]
    assert [p.token_id for p in adapter_of(PUBLISHED["flan-t5-xxl"]).placeholders] == [32100]


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("text_config", "model_type", "llama"),
        ("text_config", "do_layer_norm_before", False),
        ("text_config", "word_embed_proj_dim", 512),
        ("text_config", "hidden_size", 0),
        ("text_config", "activation_function", "mish"),
        ("vision_config", "qkv_bias", False),
        ("qformer_config", "use_qformer_text_input", True),
    ],
)
def test_other_configs_are_refused(part: str, field: str, value: Any) -> None:
    settings = opt("2.7b")
    with pytest.raises(MMCoreError, match=r"config\.json"):
        adapter_of({**settings, part: {**settings[part], field: value}})


def test_a_config_without_text_is_refused() -> None:
    with pytest.raises(CheckpointError, match="text_config"):
        adapter_of({"model_type": "blip-2"})


def test_a_t5_without_gated_layers_is_refused() -> None:
    settings = config(TinyShape(), "t5")
    settings["text_config"]["feed_forward_proj"] = "relu"
    with pytest.raises(MMCoreError, match="gated"):
        adapter_of(settings)


def test_the_embedding_of_t5_is_one_memory(tmp_path: Any) -> None:
    checkpoint = Checkpoint(write_tiny_checkpoint(tmp_path, "t5"))
    adapter = Blip2Adapter.from_config(checkpoint.config, checkpoint)
    model = build_model(adapter, torch.float32, torch.device("cpu"))
    names = ("context.embedding", "decoder.embedding")
    one, other = (model.get_submodule(name).weight for name in names)
    assert one is other
