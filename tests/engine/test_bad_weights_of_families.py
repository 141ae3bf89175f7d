"""Weights that are not whole, in every family: an error names the tensor and its file."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from engine.bad_batch import SMALL, check_text
from engine.tiny_families import FAMILIES
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from mmcore import LLM
from mmcore.errors import WeightError
from mmcore.inputs.checkpoint import Checkpoint

Tensors = dict[str, torch.Tensor]


@pytest.fixture(params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return FAMILIES[request.param](tmp_path)


def parts(folder: Path) -> list[tuple[Path, str]]:
    """Of every file its first and its last tensor."""
    found = []
    for file in Checkpoint(folder).weight_files():
        with safe_open(file, framework="pt") as opened:
            names = sorted(opened.keys())
        found += [(file, names[0]), (file, names[-1])]
    return found


def change(file: Path, edit: Callable[[Tensors], object]) -> None:
    tensors = load_file(file)
    edit(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


def drop(name: str, tensors: Tensors) -> None:
    del tensors[name]


def cut(name: str, tensors: Tensors) -> None:
    tensors[name] = tensors[name][..., :-1].contiguous()


def refused(folder: Path, *words: str) -> None:
    before = threading.active_count()
    with pytest.raises(WeightError) as caught:
        LLM(folder, device="cpu", kv_cache_config=SMALL)
    for word in words:
        check_text(caught.value, re.escape(word))
    assert threading.active_count() == before, "a refused checkpoint leaves a thread behind"


def test_a_missing_tensor(folder: Path) -> None:
    for file, name in parts(folder):
        whole = file.read_bytes()
        change(file, partial(drop, name))
        refused(folder, "missing from", name)
        file.write_bytes(whole)


def test_a_wrongly_shaped_tensor(folder: Path) -> None:
    for file, name in parts(folder):
        whole = file.read_bytes()
        change(file, partial(cut, name))
        refused(folder, file.name, name, "has shape")
        file.write_bytes(whole)


def test_an_extra_tensor(folder: Path) -> None:
    file, _ = parts(folder)[0]
    change(file, lambda tensors: tensors.update({"adapter.lora_A.weight": torch.zeros(2, 2)}))
    refused(folder, file.name, "adapter.lora_A.weight", "no place")


@pytest.mark.parametrize("size", [0, 4, 100, -100])
def test_a_file_that_is_cut(folder: Path, size: int) -> None:
    file, _ = parts(folder)[-1]
    file.write_bytes(file.read_bytes()[:size])
    refused(folder, file.name, "not a readable safetensors file")
