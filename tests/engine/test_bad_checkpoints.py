"""A checkpoint that is not whole, or not what it says, is refused by name before anything runs."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from engine.bad_batch import check_text
from safetensors.torch import load_file, save_file

from mmcore import LLM
from mmcore.errors import CheckpointError, MMCoreError, PluginLoadError, UnknownArchitectureError, WeightError

Tensors = dict[str, torch.Tensor]

NORMS = {"pictures": "model.norm.weight", "sounds": "model.decoder.layer_norm.weight"}
MATRICES = {
    "pictures": "model.layers.1.mlp.up_proj.weight",
    "sounds": "model.decoder.layers.1.fc1.weight",
}
TOWERS = {"pictures": "visual.merger.mlp.2.weight", "sounds": "model.encoder.layers.0.self_attn.q_proj.bias"}


@pytest.fixture
def copy_of(
    request: pytest.FixtureRequest, picture_family: Any, sound_family: Any, tmp_path: Path
) -> Callable[[str], Path]:
    """A checkpoint of a family's, to damage."""
    folders = {"pictures": picture_family.folder, "sounds": sound_family.folder}

    def make(name: str) -> Path:
        return Path(shutil.copytree(folders[name], tmp_path / "model"))

    return make


def change_weights(folder: Path, change: Callable[[Tensors], object]) -> None:
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


def change_json(folder: Path, name: str, **fields: Any) -> None:
    file = folder / name
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def refused(folder: Path, error: type[MMCoreError], message: str) -> None:
    before = threading.active_count()
    with pytest.raises(error, match=message) as caught:
        LLM(folder, device="cpu")
    assert type(caught.value) is error
    assert threading.active_count() == before, "a refused checkpoint leaves a thread behind"


@pytest.mark.parametrize("names", [NORMS, MATRICES, TOWERS])
@pytest.mark.parametrize("family", ["pictures", "sounds"])
def test_a_missing_tensor(copy_of: Any, family: str, names: dict[str, str]) -> None:
    folder = copy_of(family)
    change_weights(folder, lambda tensors: tensors.pop(names[family]))
    refused(
        folder, WeightError, f"missing from model.safetensors: '{names[family]}'.*the checkpoint is incom"
    )


@pytest.mark.parametrize("extra", ["model.layers.9.mlp.up_proj.weight", "adapter.lora_A.weight"])
@pytest.mark.parametrize("family", ["pictures", "sounds"])
def test_an_extra_tensor(copy_of: Any, family: str, extra: str) -> None:
    folder = copy_of(family)
    change_weights(folder, lambda tensors: tensors.update({extra: torch.zeros(2, 2)}))
    refused(folder, WeightError, f"model.safetensors: tensor '{extra}' .*(no place|does not have)")


@pytest.mark.parametrize("names", [NORMS, MATRICES, TOWERS])
@pytest.mark.parametrize("family", ["pictures", "sounds"])
def test_a_wrongly_shaped_tensor(copy_of: Any, family: str, names: dict[str, str]) -> None:
    folder, name = copy_of(family), names[family]
    change_weights(folder, lambda tensors: tensors.update({name: tensors[name][:-1].clone()}))
    refused(folder, WeightError, f"tensor '{name}' has shape .*but config.json asks for")


@pytest.mark.parametrize("family", ["pictures", "sounds"])
@pytest.mark.parametrize("size", [0, 4, 100, -100])
def test_weights_that_are_cut_off(copy_of: Any, family: str, size: int) -> None:
    folder = copy_of(family)
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:size])
    refused(folder, WeightError, "model.safetensors is not a readable safetensors file")


@pytest.mark.parametrize(
    ("architecture", "message"),
    [
        ("LlavaForConditionalGeneration", "'llava' .* is switched off by MMCORE_DISABLE_PLUGINS"),
        ("NobodysModel", "NobodysModel"),
    ],
)
def test_an_unknown_architecture(
    copy_of: Any, architecture: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MMCORE_DISABLE_PLUGINS", "llava")
    folder = copy_of("pictures")
    change_json(folder, "config.json", architectures=[architecture], model_type="other")
    refused(folder, UnknownArchitectureError, message)


@pytest.mark.parametrize("family", ["pictures", "sounds"])
@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", None, "no config.json"),
        ("config.json", "{", "config.json .*is not JSON"),
        ("config.json", "[]", "config.json .*is not a JSON object"),
        ("config.json", b"\xff\xfe", "config.json .*cannot be read as UTF-8"),
        ("tokenizer.json", None, "no tokenizer.json; write one"),
        ("tokenizer.json", "{}", "tokenizer.json cannot be read"),
        ("generation_config.json", "{", "generation_config.json .*is not JSON"),
        ("preprocessor_config.json", "{", "preprocessor_config.json .*is not JSON"),
        ("model.safetensors", None, r"no \*.safetensors weights"),
    ],
)
def test_files_that_are_missing_or_broken(
    copy_of: Any, family: str, file: str, content: Any, message: str
) -> None:
    folder = copy_of(family)
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(folder, CheckpointError, message)


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        ("pictures", {"hidden_size": "many"}),
        ("pictures", {"hidden_size": -64}),
        ("pictures", {"num_attention_heads": 0}),
        ("pictures", {"num_attention_heads": 3}),
        ("pictures", {"num_key_value_heads": 3}),
        ("pictures", {"vocab_size": 0}),
        ("pictures", {"vision_config": []}),
        ("pictures", {"vision_config": {"depth": "two"}}),
        ("pictures", {"hidden_act": "sigmoid"}),
        ("pictures", {"rope_scaling": {"type": "mrope", "mrope_section": [1, 2]}}),
        ("pictures", {"rope_scaling": {"type": "unheard of"}}),
        ("pictures", {"max_position_embeddings": 0}),
        ("pictures", {"max_position_embeddings": None}),
        ("sounds", {"d_model": "many"}),
        ("sounds", {"d_model": None}),
        ("sounds", {"decoder_attention_heads": 0}),
        ("sounds", {"decoder_attention_heads": 5}),
        ("sounds", {"num_mel_bins": -3}),
        ("sounds", {"max_source_positions": 0}),
        ("sounds", {"activation_function": "relu"}),
        ("sounds", {"vocab_size": 10}),
    ],
)
def test_a_config_that_makes_no_sense(copy_of: Any, family: str, fields: dict[str, Any]) -> None:
    """Whatever is wrong, it is an error that says where to look, not a traceback out of torch."""
    folder = copy_of(family)
    change_json(folder, "config.json", **fields)
    with pytest.raises((CheckpointError, PluginLoadError)) as caught:
        LLM(folder, device="cpu")
    check_text(caught.value, "config.json|this checkpoint|num_mel_bins|activation_function")


def test_what_is_no_model(tmp_path: Path) -> None:
    refused(tmp_path, CheckpointError, "no config.json")
    refused(tmp_path / "nowhere", CheckpointError, "there is no folder")
