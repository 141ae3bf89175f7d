"""Checkpoints made from an adapter's own weight rules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from mmcore_qwen2vl.testing import Variant, write_tiny_checkpoint
from safetensors import safe_open

from mmcore.adapter import Adapter
from mmcore.errors import WeightError
from mmcore.inputs.checkpoint import Checkpoint
from mmcore.plugins import load_plugins
from mmcore.testing.tiny import Shape, tensor_shapes


def stored(folder: Path) -> dict[str, Shape]:
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


@pytest.mark.parametrize("variant", ["2", "2.5"])
def test_they_are_the_checkpoint_s_own(variant: Variant, tmp_path: Path) -> None:
    folder = write_tiny_checkpoint(tmp_path, variant)
    wanted = stored(folder)
    convolution = "visual.patch_embed.proj.weight"
    found = tensor_shapes(adapter_of(folder), {convolution: wanted[convolution]})
    assert found == wanted


def test_a_parameter_without_a_rule_is_named(tmp_path: Path) -> None:
    adapter = adapter_of(write_tiny_checkpoint(tmp_path))
    fewer = tuple(rule for rule in adapter.weights if "down_proj" not in rule.source)
    with pytest.raises(
        WeightError, match=r"fills decoder\.layers\.0\.mlp\.down\.weight: add one to its weights"
    ):
        tensor_shapes(replace(adapter, weights=fewer))


def adapter_of(folder: Path) -> Adapter:
    checkpoint, registry = Checkpoint(folder), load_plugins()
    return registry.load_adapter(registry.resolve(checkpoint.config), checkpoint.config, checkpoint)
