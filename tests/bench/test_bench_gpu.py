"""The bench on a GPU: kernels pass their check and are timed, a profile sees the device's time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch

from mmcore.bench.kernel_check import check_kernels, graph_fault
from mmcore.cli import main

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

READER = str(files("mmcore_qwen2vl") / "reader")


def test_kernels_compile_and_compute_what_torch_does() -> None:
    found = list(check_kernels(torch.device("cuda")))
    assert len(found) >= 12
    assert [fault for fault in found if fault.reason] == []


def test_a_step_is_captured() -> None:
    assert graph_fault(torch.device("cuda")) == ""


def test_kernels_are_timed_beside_torch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "kernels.json"
    assert main(["bench", "kernels", "--only", "argmax", "rms_norm", "--json", str(out)]) == 0
    rows = json.loads(out.read_text())["rows"]
    assert {row["kernel"] for row in rows} == {"argmax", "rms_norm"}
    assert all(row["us"] > 0 and row["torch_us"] > 0 for row in rows)
    assert all(row["floor_us"] < 1.1 * row["us"] for row in rows)
    assert "of roofline" in capsys.readouterr().out


def profiled(lines: list[str]) -> Mapping[str, list[float]]:
    """Mechanism to host, launching and device milliseconds."""
    table = (line.split() for line in lines[lines.index("") + 3 :])
    return {row[0]: [float(value) for value in row[2:5]] for row in table if row[0] != "all"}


def test_a_profile_sees_the_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options: list[Any] = ["--num-requests", "2", "--num-iters", "1", "--output-len", "8"]
    options += ["--image-size", "112x56", "--profile", str(tmp_path / "trace.json")]
    assert main(["bench", "throughput", "--model", READER, *options]) == 0
    found = profiled(capsys.readouterr().out.splitlines())
    for mechanism in ("encoder", "prompt", "decode"):
        host, launching, device = found[mechanism]
        assert device > 0, found
        assert 0 < launching < host, found


def test_weights_from_a_file_are_those_of_the_cpu() -> None:
    from mmcore import LLM, KvCacheConfig

    cache = KvCacheConfig(max_tokens=1024)
    with (
        LLM(READER, device="cpu", dtype="float32") as on_cpu,
        LLM(READER, device="cuda", dtype="float32", kv_cache_config=cache) as on_gpu,
    ):
        wanted, found = (dict(llm._engine._runner._model.named_parameters()) for llm in (on_cpu, on_gpu))
        assert all(torch.equal(found[name].cpu(), parameter) for name, parameter in wanted.items())
