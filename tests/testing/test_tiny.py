"""Tiny checkpoints: tokenizer, weights, files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mmcore.inputs.checkpoint import Checkpoint
from mmcore.testing.tiny import byte_tokenizer, fan_in_weights, save_checkpoint

SHAPES = {"embed_tokens.weight": (64, 16), "norm.weight": (16,), "q.bias": (16,), "conv.weight": (8, 3, 4)}


@pytest.mark.parametrize("text", ["plain", "é漢🙂", "\0\n\t  two  blanks ", "<|end|> typed"])
def test_every_byte_is_a_token(tmp_path: Path, text: str) -> None:
    save_checkpoint(tmp_path, {}, {"tokenizer.json": byte_tokenizer(["<|end|>"]), "config.json": {"a": 1}})
    tokenizer = Checkpoint(tmp_path).tokenizer
    ids = tokenizer.encode(text, special_tokens=False)
    assert len(ids) == len(text.encode())
    assert tokenizer.decode(ids) == text
    assert (tokenizer.token_id("<|end|>"), tokenizer.vocab_size) == (256, 257)


def test_weights_are_scaled_by_fan_in_and_reproducible() -> None:
    weights = fan_in_weights(SHAPES, seed=1)
    again = fan_in_weights(SHAPES, seed=1, gains={"conv": 3.0})
    other = fan_in_weights(SHAPES, seed=2)
    assert torch.equal(weights["norm.weight"], again["norm.weight"])
    torch.testing.assert_close(3 * weights["conv.weight"], again["conv.weight"])
    assert not torch.equal(weights["q.bias"], other["q.bias"])
    assert abs(float(weights["embed_tokens.weight"].std()) - 16**-0.5) < 0.02
    assert abs(float(weights["norm.weight"].mean()) - 1) < 0.1
    assert abs(float(weights["q.bias"].mean())) < 0.1


@pytest.mark.parametrize("shards", [1, 3])
def test_a_saved_checkpoint_holds_every_tensor_once(tmp_path: Path, shards: int) -> None:
    weights = fan_in_weights(SHAPES, seed=0)
    folder = save_checkpoint(
        tmp_path / "new", weights, {"config.json": {}, "a.txt": "as it is"}, shards=shards
    )
    saved = Checkpoint(folder).weight_files()
    loaded = [load_file(file) for file in saved]
    assert len(saved) == shards
    assert sorted(name for part in loaded for name in part) == sorted(SHAPES)
    assert all(torch.equal(tensor, weights[name]) for part in loaded for name, tensor in part.items())
    assert (folder / "a.txt").read_text() == "as it is"
    if shards > 1:
        index = json.loads((folder / "model.safetensors.index.json").read_text())
        assert sorted(set(index["weight_map"].values())) == [file.name for file in saved]
