"""What a kernel is timed on: a cell has a shape, the time it needs at least, and calls over cold data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

Call = Callable[[], Any]
COLD_BYTES = 256 << 20
"""What the calls of a cell read together: several times a card's L2 cache."""


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Of a card: bytes a second read, and read and written; half-precision operations a second."""

    read: float
    copy: float
    math: float


KNOWN = {"NVIDIA H200": Ceilings(read=4.4e12, copy=4.25e12, math=780e12)}
"""Measured: the best read-only kernel, a device copy of 4 GiB, a product of 8192 x 8192 x 8192."""


@dataclass(frozen=True, slots=True)
class Sides:
    """Calls that give the same, each over data of its own; no calls of torch's where it has none."""

    ours: Sequence[Call]
    theirs: Sequence[Call] = ()


class Cell(Protocol):
    """A kernel at one shape, in bfloat16 on a GPU."""

    @property
    def kernel(self) -> str: ...
    @property
    def shape(self) -> str: ...
    def floor(self, ceilings: Ceilings) -> float:
        """Seconds that its bytes or operations need at least."""
        ...

    def sides(self, device: torch.device, cold_bytes: int = COLD_BYTES) -> Sides: ...


def dtype_on(device: torch.device) -> torch.dtype:
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def cold_sets(num_bytes: float, cold_bytes: int, least: int = 1) -> int:
    """How many sets of so many bytes are cold together."""
    return max(least, min(64, -(-cold_bytes // max(1, int(num_bytes)))))
