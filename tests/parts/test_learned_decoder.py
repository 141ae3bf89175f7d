"""Decoders with learned positions: each tensor of the hub has one rule, each parameter one tensor."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import MBartConfig, MBartForCausalLM, OPTConfig, OPTForCausalLM

from mmcore.model.decoder import Decoder
from mmcore.model.weights import digits_pattern, parameter_parts
from mmcore.parts.learned_decoder import crossed_decoder, learned_decoder, learned_decoder_rules

SIZES: dict[str, Any] = {"vocab_size": 30, "hidden_size": 16, "ffn_dim": 24, "max_position_embeddings": 12}
TEXT: dict[str, Any] = {
    **SIZES,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "activation_function": "gelu",
}
CROSSED: dict[str, Any] = {
    "norms": {"layer_norm": "norm", "layernorm_embedding": "embed_norm"},
    "cross": True,
}


def plain() -> Any:
    return OPTForCausalLM(OPTConfig(word_embed_proj_dim=16, **TEXT))


def crossed() -> Any:
    sizes: dict[str, Any] = {
        "d_model": 16,
        "decoder_ffn_dim": 24,
        "decoder_layers": 3,
        "decoder_attention_heads": 2,
    }
    sizes |= {"is_decoder": True, "add_cross_attention": True}
    return MBartForCausalLM(MBartConfig(**sizes, vocab_size=30, max_position_embeddings=12))


@pytest.mark.parametrize("cross", [False, True])
def test_each_tensor_fills_one_parameter(cross: bool) -> None:
    with torch.device("meta"):
        reference = crossed() if cross else plain()
        decoder = Decoder(crossed_decoder(reference.config.to_dict()) if cross else learned_decoder(TEXT))
    rules = list(learned_decoder_rules("model.decoder.", **(CROSSED if cross else {})))
    filled = {}
    for name, tensor in reference.model.decoder.named_parameters():
        matches = [
            (r, m) for r in rules if (m := digits_pattern(r.source).fullmatch(f"model.decoder.{name}"))
        ]
        assert len(matches) == 1, name
        rule, found = matches[0]
        filled[rule.target.format(*found.groups()), rule.shard] = tuple(tensor.shape)
    wanted = {(f"decoder.{name}", shard): shape for name, shard, shape in parameter_parts(decoder)}
    assert filled == wanted


@pytest.mark.parametrize("scaled", [False, True])
def test_embeddings_are_scaled_by_the_root_of_their_width(scaled: bool) -> None:
    config = crossed_decoder({**crossed().config.to_dict(), "scale_embedding": scaled})
    assert config.embed_scale == (4.0 if scaled else 1.0)
    assert (config.embed_norm, config.cross_width, config.tied_head) == (True, 16, True)
