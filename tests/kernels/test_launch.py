"""A kernel that does not compile for the card: the error says which, why, and how to go on without it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch

from mmcore.errors import KernelError
from mmcore.kernels.launch import Launcher


class Stubborn:
    """Stands where a Triton kernel does; its compiler has a message of several lines, or a device's fault."""

    __name__ = "stubborn"

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getitem__(self, grid: Any) -> Any:
        def launch(*args: Any, **options: Any) -> None:
            raise self._error

        return launch


def test_the_error_names_kernel_reason_and_cure() -> None:
    launch = Launcher(Stubborn(ValueError("out of resource: shared memory\nRequired: 300000")))
    with pytest.raises(KernelError) as caught:
        launch("key", (1, 1, 1), ())
    told = str(caught.value)
    assert "'stubborn'" in told
    assert "ValueError: out of resource: shared memory" in told
    assert "Required" not in told
    assert "mmcore doctor" in told
    assert "MMCORE_KERNELS=torch" in told


def test_what_the_device_fails_in_is_no_fault_of_the_kernel() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        Launcher(Stubborn(torch.OutOfMemoryError("no memory")))("key", (1, 1, 1), ())


@pytest.mark.parametrize(("value", "wanted"), [("torch", "torch False"), ("", "triton True")])
def test_the_switch_does_without_triton(value: str, wanted: str) -> None:
    code = (
        "import torch; from mmcore.kernels.dispatch import explain, use_triton\n"
        "print(explain(True).implementation, use_triton(torch.empty(1)))"
    )
    environment = {**os.environ, "MMCORE_KERNELS": value, "TRITON_INTERPRET": "1"}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert ended.stdout.strip() == wanted, ended.stderr
