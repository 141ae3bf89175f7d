"""`benchmarks/startup.py` writes a checkpoint that loads: here of a tiny shape, in several shards."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mmcore_qwen2vl.testing
import pytest
import torch

from benchmarks import shapes, startup
from mmcore import LLM, SamplingParams


@pytest.fixture
def tiny(tmp_path: Path) -> Mapping[str, Any]:
    folder = mmcore_qwen2vl.testing.write_tiny_checkpoint(tmp_path / "tiny")
    return {file.name: file.read_text() for file in folder.iterdir() if file.suffix == ".json"}


def test_what_is_written_loads(
    tiny: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(shapes.SHAPES, "tiny", lambda: tiny)
    folder = tmp_path / "written"
    size = startup.write_checkpoint("tiny", folder, "cpu", shard_bytes=100_000)
    files = sorted(folder.glob("*.safetensors"))
    assert len(files) > 2
    assert size == sum(file.stat().st_size for file in files)
    with LLM(folder, device="cpu") as llm:
        weights = dict(llm._engine._runner._model.named_parameters())
        assert size > 2 * sum(weight.numel() for weight in weights.values())
        output = llm.generate("Hello", SamplingParams(max_tokens=3, ignore_eos=True), use_tqdm=False)
    assert len(output.token_ids) == 3
    assert all(torch.isfinite(weight).all() and weight.std() > 0 for weight in weights.values())
