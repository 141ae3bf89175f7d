"""Kernels that start while the one before them still runs (programmatic dependent launch, from Hopper on).

A kernel that is launched with `pdl` says so by its constant ``CHAINED`` and calls `begin` once, before it
reads or writes anything but what no kernel writes (weights). So each has waited for all before it, even where
those have not ended when it starts.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@cache
def chains(device: torch.device) -> bool:
    """Whether the device can."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] >= 9


def pdl(chained: bool) -> dict[str, Any]:
    """Launch options; the interpreter knows none of them."""
    return {"launch_pdl": True} if chained else {}


@triton.jit
def begin(CHAINED: tl.constexpr):
    """Wait until all that came before is done and can be read, then let the next kernel start.

    In this order no more than one kernel waits: a queue of them would hold the memory and registers of those
    that work. For the same reason only few or small programs gain: of many, the next kernel's take what place
    is left, and lie unevenly over the card when they begin.
    """
    if CHAINED:
        gdc_wait()
        gdc_launch_dependents()
