"""Which implementation of an operation runs: Triton where it can, torch everywhere else.

Triton code lives in ``*_triton.py`` modules that launchers import on first use: ``import mmcore.kernels``
works without triton, and ``TRITON_INTERPRET=1`` (read when triton is imported) reaches the kernels.
``MMCORE_KERNELS=torch`` (read at the first launch) does without them, for a card that they do not run on.
"""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Literal

from torch import Tensor

SWITCH = "MMCORE_KERNELS"


@cache
def _is_switched_off() -> bool:
    return os.environ.get(SWITCH) == "torch"


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None and not _is_switched_off()


def use_triton(tensor: Tensor) -> bool:
    """True for a CUDA tensor, and for any tensor where ``TRITON_INTERPRET=1`` asks for the interpreter."""
    return (tensor.is_cuda or os.environ.get("TRITON_INTERPRET") == "1") and _has_triton()


@dataclass(frozen=True, slots=True)
class Choice:
    """What runs where there are both, and why; for people."""

    implementation: Literal["triton", "torch"]
    reason: str


def explain(is_cuda: bool) -> Choice:
    """What `use_triton` says of a tensor on such a device."""
    if _is_switched_off():
        return Choice("torch", f"{SWITCH}=torch does without Triton")
    if not _has_triton():
        return Choice("torch", "triton is not installed")
    if is_cuda:
        return Choice("triton", "the device is a GPU")
    if os.environ.get("TRITON_INTERPRET") == "1":
        return Choice("triton", "TRITON_INTERPRET=1 asks for its interpreter")
    return Choice("torch", "there is no GPU")


def operations() -> Iterator[tuple[str, bool]]:
    """Each operation, a module with a function of its name, and whether it has a Triton kernel."""
    package = __name__.rpartition(".")[0]
    names = {found.name for found in pkgutil.iter_modules(import_module(package).__path__)}
    for name in sorted(names):
        if not name.endswith("_triton") and hasattr(import_module(f"{package}.{name}"), name):
            yield name, f"{name}_triton" in names
