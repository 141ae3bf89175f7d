"""The gate of a gated MLP: ``silu(gate) * up``."""

from __future__ import annotations

import torch
from torch import Tensor

from mmcore.kernels.dispatch import use_triton


def swiglu_reference(gate_up: Tensor) -> Tensor:
    """Written out: ``gate * sigmoid(gate) * up``."""
    gate, up = gate_up.chunk(2, dim=-1)
    return gate * torch.sigmoid(gate) * up


def swiglu(gate_up: Tensor) -> Tensor:
    """[..., 2 * I] -> [..., I]; the first half is the gate (Shazeer 2020, arXiv 2002.05202)."""
    if use_triton(gate_up):
        from mmcore.kernels.swiglu_triton import swiglu_triton

        return swiglu_triton(gate_up)
    gate, up = gate_up.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate).mul_(up)
