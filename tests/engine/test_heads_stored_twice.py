"""A tied head that a file holds all the same: left out where it is the embedding, else an error."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import mmcore_llava.testing as llava
import mmcore_nvila.testing as nvila
import mmcore_qwen2vl.testing as qwen2vl
import mmcore_whisper.testing as whisper
import pytest
from engine.bad_batch import SMALL
from safetensors.torch import load_file, save_file
from torch import Tensor

from mmcore import LLM
from mmcore.errors import WeightError

Write = Callable[[Path], Path]

TIED: dict[str, tuple[Write, str, str, str]] = {
    "llava": (
        partial(llava.write_tiny_checkpoint, variant="onevision"),
        "model.safetensors",
        "language_model.model.embed_tokens.weight",
        "language_model.lm_head.weight",
    ),
    "nvila": (
        partial(nvila.write_tiny_checkpoint, variant="nvila-lite"),
        "llm/model.safetensors",
        "model.embed_tokens.weight",
        "lm_head.weight",
    ),
    "qwen2vl": (
        partial(qwen2vl.write_tiny_checkpoint, tied=True),
        "model.safetensors",
        "model.embed_tokens.weight",
        "lm_head.weight",
    ),
    "whisper": (
        whisper.write_tiny_checkpoint,
        "model.safetensors",
        "model.decoder.embed_tokens.weight",
        "proj_out.weight",
    ),
}
"""By family: a tied checkpoint, the file of its text model, the embedding there and the head's name."""


def add(file: Path, name: str, tensor: Tensor) -> None:
    save_file(load_file(file) | {name: tensor.clone()}, file, {"format": "pt"})


@pytest.mark.parametrize("family", TIED)
def test_a_tied_head_that_is_stored(tmp_path: Path, family: str) -> None:
    write, name, table, head = TIED[family]
    file = write(tmp_path) / name
    embedding = load_file(file)[table]
    add(file, head, embedding)
    LLM(tmp_path, device="cpu", kv_cache_config=SMALL).shutdown()
    add(file, head, embedding * 1.5)
    with pytest.raises(WeightError, match=rf"'{head}' would be left out .*is tie_word_embeddings"):
        LLM(tmp_path, device="cpu", kv_cache_config=SMALL)
