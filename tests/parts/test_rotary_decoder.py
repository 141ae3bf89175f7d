"""Rows of the shared decoder: what the hub's text configs say."""

from __future__ import annotations

from typing import Any

import pytest

from mmcore.decoder_config import Rope
from mmcore.errors import CheckpointError, UnsupportedOptionError
from mmcore.parts.rotary_decoder import rotary_buffers, rotary_decoder, rotary_decoder_rules

TEXT: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "max_position_embeddings": 4096,
}


def test_silence_means_the_plain_kind() -> None:
    row = rotary_decoder(TEXT)
    assert (row.num_kv_heads, row.head_dim, row.max_length) == (4, 16, 4096)
    assert row.positions == Rope(theta=10_000.0)
    assert (row.q_bias, row.out_bias, row.tied_head, row.cross_attention) == (False,) * 4


def test_what_the_file_says_wins() -> None:
    said = {"num_key_value_heads": 2, "head_dim": 32, "rope_theta": 1e6, "tie_word_embeddings": False}
    row = rotary_decoder({**TEXT, **said}, qkv_bias=True, tied_head=True)
    assert (row.num_kv_heads, row.head_dim) == (2, 32)
    assert row.positions == Rope(theta=1e6)
    assert (row.q_bias, row.out_bias, row.tied_head) == (True, False, False)


@pytest.mark.parametrize(
    "fields",
    [
        {"rope_theta": 5e5, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        {"rope_parameters": {"rope_theta": 5e5, "rope_type": "linear", "factor": 2.0}},
    ],
)
def test_old_and_new_names_of_rotary_settings(fields: dict[str, Any]) -> None:
    row = rotary_decoder({**TEXT, **fields})
    assert row.positions == Rope(theta=5e5, scaling=(("factor", 2.0), ("rope_type", "linear")))


@pytest.mark.parametrize(("window", "refused"), [(None, False), (4096, False), (2048, True)])
def test_a_window_that_cuts_is_refused_by_name(window: int | None, refused: bool) -> None:
    text = {**TEXT, "sliding_window": window}
    if not refused:
        rotary_decoder(text)
        return
    with pytest.raises(UnsupportedOptionError, match="sliding_window 2048"):
        rotary_decoder(text)


def test_a_window_that_is_switched_off_cuts_nothing() -> None:
    assert rotary_decoder({**TEXT, "sliding_window": 8, "use_sliding_window": False}).max_length == 4096


@pytest.mark.parametrize("name", ["hidden_size", "num_attention_heads", "vocab_size"])
def test_a_missing_size_is_named(name: str) -> None:
    with pytest.raises(CheckpointError, match=name):
        rotary_decoder({key: value for key, value in TEXT.items() if key != name})


def test_each_prefix_has_its_rules_and_a_tied_head_has_none() -> None:
    tied = rotary_decoder_rules(["model.", "language_model.model."], None)
    sources = {rule.source for rule in tied}
    assert {"model.embed_tokens.weight", "language_model.model.layers.{}.mlp.up_proj.weight"} <= sources
    head = set(rotary_decoder_rules(["model."], "lm_head.weight")) - set(tied)
    assert [rule.target for rule in head] == ["decoder.head.weight"]
    assert all(ignored.source.startswith("model.") for ignored in rotary_buffers(["model."]))
