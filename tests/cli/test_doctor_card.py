"""``mmcore doctor`` on a GPU's kernels and graphs, faults put in one at a time; the device is the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mmcore.bench import row_cells
from mmcore.cli import doctor_card
from mmcore.cli.finding import Finding
from mmcore.errors import KernelError
from mmcore.kernels.swiglu import swiglu
from mmcore.runner import graph_recorder

CPU = torch.device("cpu")


class Recorder:
    """Captures nothing: a replay runs the work as it stands."""

    def __init__(self, device: torch.device) -> None:
        pass

    def record(self, work: Callable[[], Any]) -> Callable[[], Any]:
        return work


class BrokenRecorder(Recorder):
    def record(self, work: Callable[[], Any]) -> Callable[[], Any]:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")


@pytest.fixture(autouse=True)
def _recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_recorder, "GraphRecorder", Recorder)


def found() -> dict[str, list[Finding]]:
    by_status: dict[str, list[Finding]] = {"ok": [], "warning": [], "broken": []}
    for finding in doctor_card.check_card(CPU):
        by_status[finding.status].append(finding)
    return by_status


def test_all_is_well() -> None:
    findings = found()
    assert not findings["warning"] + findings["broken"]
    kernels, graphs = findings["ok"]
    assert {"paged_attention", "store_kv", "argmax"} <= set(kernels.detail.partition(": ")[2].split(", "))
    assert graphs.what == "graphs cpu"


def test_a_kernel_that_does_not_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_compile(x: Tensor) -> Tensor:
        raise KernelError("kernel 'gate' does not run on this device (OutOfResources: shared memory)")

    monkeypatch.setattr(row_cells, "swiglu", no_compile)
    findings = found()
    (broken,) = findings["broken"]
    assert broken.what == "kernels cpu"
    assert broken.detail.startswith("swiglu cannot be used: KernelError: kernel 'gate' does not run")
    assert "MMCORE_KERNELS=torch" in broken.cure
    assert "swiglu" not in findings["ok"][0].detail
    assert "rms_norm" in findings["ok"][0].detail


@pytest.mark.parametrize("wrong", [lambda x: -swiglu(x), lambda x: swiglu(x) * torch.nan])
def test_a_kernel_that_computes_something_else(
    wrong: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_cells, "swiglu", wrong)
    (broken,) = found()["broken"]
    assert "swiglu cannot be used: is off by" in broken.detail


def test_a_fault_of_the_device_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*arguments: Any, **options: Any) -> Tensor:
        raise torch.AcceleratorError("an illegal memory access was encountered", 700)

    monkeypatch.setattr(row_cells, "rms_norm", gone)
    findings = found()
    assert findings["broken"][0].detail.startswith("rms_norm cannot be used: AcceleratorError")
    assert "store_kv" not in findings["ok"][0].detail


def test_a_step_that_cannot_be_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_recorder, "GraphRecorder", BrokenRecorder)
    findings = found()
    assert not findings["broken"]
    (warning,) = findings["warning"]
    assert warning.what == "graphs cpu"
    assert "RuntimeError: operation not permitted when stream is capturing)" in warning.detail
    assert "runs eagerly" in warning.detail


def test_nothing_is_said_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert not list(doctor_card.check_cards())
