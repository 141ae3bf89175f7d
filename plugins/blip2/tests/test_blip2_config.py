"""Configs of the published checkpoints, as they are on the hub, and those that are refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import transformers
from mmcore_blip2.adapter import Blip2Adapter
from mmcore_blip2.conformance import PUBLISHED, published_files
from mmcore_blip2.testing import TinyShape, config, write_tiny_checkpoint

from mmcore.adapter import Adapter
from mmcore.errors import CheckpointError, MMCoreError
from mmcore.inputs.checkpoint import Checkpoint
from mmcore.model.weights import build_model

OLD = PUBLISHED["blip2-opt-2.7b, before it named its placeholder"]


class NoTokens:
    def token_id(self, token: str) -> int | None:
        return None


@dataclass(frozen=True)
class NoFiles:
    """A checkpoint of which only the config is known."""

    small: dict[str, Any]
    tokenizer: NoTokens = field(default_factory=NoTokens)
    tensor_names: tuple[str, ...] = ()

    def json(self, name: str) -> dict[str, Any]:
        return self.small.get(name, {})  # type: ignore[no-any-return]


def adapter_of(settings: dict[str, Any]) -> Adapter:
    files = NoFiles(published_files({"vision_config": {}, **settings}))
    return Blip2Adapter.from_config(settings, files)  # type: ignore[arg-type]


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
    assert [p.token_id for p in adapter_of(OLD).placeholders] == [50272]
    assert [p.token_id for p in adapter_of(PUBLISHED["blip2-flan-t5-xxl"]).placeholders] == [32100]


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
    settings = OLD
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
