"""Strict loading: each tensor used once or ignored, each parameter filled once, errors name the tensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mmcore.adapter import WeightRule
from mmcore.decoder_config import DecoderConfig, Rope
from mmcore.errors import WeightError
from mmcore.model.weight_copy import WeightCopier
from mmcore.model.weights import LoadPlan, build_model, fill, folder_prefixes, load_weights

CONFIG = DecoderConfig(
    vocab_size=10,
    hidden_size=8,
    num_layers=2,
    num_heads=2,
    num_kv_heads=1,
    head_dim=4,
    intermediate_size=6,
    positions=Rope(),
    max_length=16,
    q_bias=True,
    v_bias=True,
    tied_head=True,
)
RULES = [
    WeightRule("embed", "decoder.embedding.weight"),
    WeightRule("norm", "decoder.norm.weight"),
    WeightRule("{}.norm1", "decoder.layers.{}.attn_norm.weight"),
    WeightRule("{}.norm2", "decoder.layers.{}.mlp_norm.weight"),
    WeightRule("{}.q", "decoder.layers.{}.attn.qkv.weight", "q"),
    WeightRule("{}.k", "decoder.layers.{}.attn.qkv.weight", "k"),
    WeightRule("{}.v", "decoder.layers.{}.attn.qkv.weight", "v"),
    WeightRule("{}.qkv", "decoder.layers.{}.attn.qkv.weight"),
    WeightRule("{}.q_bias", "decoder.layers.{}.attn.qkv.bias", "q"),
    WeightRule("{}.v_bias", "decoder.layers.{}.attn.qkv.bias", "v"),
    WeightRule("{}.out", "decoder.layers.{}.attn.out.weight", reshape=True),
    WeightRule("{}.gate", "decoder.layers.{}.mlp.gate_up.weight", "gate"),
    WeightRule("{}.up", "decoder.layers.{}.mlp.gate_up.weight", "up"),
    WeightRule("{}.down", "decoder.layers.{}.mlp.down.weight"),
]
SHAPES = {
    "norm1": (8,),
    "norm2": (8,),
    "q": (8, 8),
    "k": (4, 8),
    "v": (4, 8),
    "q_bias": (8,),
    "v_bias": (4,),
    "out": (8, 2, 4),
    "gate": (6, 8),
    "up": (6, 8),
    "down": (8, 6),
}


@pytest.fixture
def tensors() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"embed": (10, 8), "norm": (8,)}
    shapes |= {f"{n}.{name}": shape for n in range(2) for name, shape in SHAPES.items()}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


@pytest.mark.parametrize("shards", [1, 3])
def test_fills_every_parameter(load: Callable[..., Any], tensors: dict[str, Tensor], shards: int) -> None:
    decoder = load(CONFIG, tensors, RULES, shards=shards).decoder
    layer = decoder.layers[1]
    fused = torch.cat([tensors["1.q"], tensors["1.k"], tensors["1.v"]])
    assert torch.equal(layer.attn.qkv.weight, fused)
    assert torch.equal(
        layer.attn.qkv.bias, torch.cat([tensors["1.q_bias"], torch.zeros(4), tensors["1.v_bias"]])
    )
    assert torch.equal(layer.attn.out.weight, tensors["1.out"].reshape(8, 8))
    assert torch.equal(layer.mlp.gate_up.weight, torch.cat([tensors["1.gate"], tensors["1.up"]]))
    assert torch.equal(decoder.layers[0].mlp.down.weight, tensors["0.down"])
    assert torch.equal(decoder.embedding.weight, tensors["embed"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pieces_smaller_than_a_tensor_fill_the_same(
    load: Callable[..., Any],
    adapter_for: Callable[..., Any],
    tensors: dict[str, Tensor],
    tmp_path: Path,
    dtype: torch.dtype,
) -> None:
    """From three files; fused, reshaped and converted."""
    expected = load(CONFIG, tensors, RULES, shards=3, dtype=dtype)
    adapter = adapter_for(CONFIG, RULES)
    model = build_model(adapter, dtype, torch.device("cpu"))
    with WeightCopier(torch.device("cpu"), threads=3, piece_bytes=48) as copier:
        fill(LoadPlan(model, adapter, copier.copy), sorted(tmp_path.glob("*.safetensors")))
    filled = dict(expected.named_parameters())
    assert filled.keys() == dict(model.named_parameters()).keys()
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, filled[name]), name


def test_a_fused_tensor_fills_all_shards(load: Callable[..., Any], tensors: dict[str, Tensor]) -> None:
    fused = torch.cat([tensors.pop("0.q"), tensors.pop("0.k"), tensors.pop("0.v")])
    model = load(CONFIG, tensors | {"0.qkv": fused}, RULES)
    assert torch.equal(model.decoder.layers[0].attn.qkv.weight, fused)


def test_converts_to_the_parameters_dtype(load: Callable[..., Any], tensors: dict[str, Tensor]) -> None:
    model = load(CONFIG, tensors, RULES, dtype=torch.bfloat16)
    assert torch.equal(model.decoder.embedding.weight, tensors["embed"].bfloat16())
    assert model.decoder.rotary.frequencies.dtype == torch.float32


def drop(name: str) -> Callable[[dict[str, Tensor]], Any]:
    return lambda tensors: tensors.pop(name)


def put(name: str, *shape: int) -> Callable[[dict[str, Tensor]], Any]:
    return lambda tensors: tensors.update({name: torch.zeros(shape)})


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (drop("1.k"), ["missing", "'1.k'", "qkv.weight[k]", "model.safetensors"]),
        (drop("norm"), ["missing", "'norm'"]),
        (drop("0.v_bias"), ["missing", "'0.v_bias'"]),
        (put("1.k_bias", 4), ["'1.k_bias'", "no place", "model.safetensors"]),
        (put("2.down", 8, 6), ["'2.down'", "does not have"]),
        (put("0.qkv", 16, 8), ["second time"]),
        (put("0.up", 8, 6), ["'0.up'", "[8, 6]", "[6, 8]"]),
        (put("0.out", 9, 8), ["'0.out'", "[9, 8]", "[8, 8]"]),
    ],
)
def test_what_does_not_fit_is_named(
    load: Callable[..., Any], tensors: dict[str, Tensor], spoil: Callable[..., Any], words: list[str]
) -> None:
    spoil(tensors)
    with pytest.raises(WeightError) as caught:
        load(CONFIG, tensors, RULES)
    for word in words:
        assert word in str(caught.value)


def test_a_bias_that_config_denies_is_no_place(load: Callable[..., Any], tensors: dict[str, Tensor]) -> None:
    with pytest.raises(WeightError, match=r"q_bias.*does not have"):
        load(replace(CONFIG, q_bias=False), tensors, RULES)


def test_two_rules_for_one_tensor_are_refused(load: Callable[..., Any], tensors: dict[str, Tensor]) -> None:
    with pytest.raises(WeightError, match="several rules"):
        load(CONFIG, tensors, [*RULES, WeightRule("norm", "decoder.embedding.weight")])


@pytest.mark.parametrize("content", [b"", b"not safetensors at all", b"\x08\0\0\0\0\0\0\0{}      junk"])
def test_a_broken_file_is_named(adapter_for: Callable[..., Any], tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "broken.safetensors"
    file.write_bytes(content)
    adapter = adapter_for(CONFIG, RULES)
    model = build_model(adapter, torch.float32, torch.device("cpu"))
    with pytest.raises(WeightError, match=r"broken\.safetensors"):
        load_weights(model, adapter, [file])


def test_names_begin_with_the_folders_that_files_do_not_share() -> None:
    one, other = Path("m/text/a.safetensors"), Path("m/tower/a.safetensors")
    assert folder_prefixes([one, one.with_name("b"), other]) == ["text.", "text.", "tower."]
    assert folder_prefixes([one, one.with_name("b")]) == ["", ""]
    assert folder_prefixes([one, Path("m/a.safetensors")]) == ["text.", ""]
    assert folder_prefixes([]) == []
