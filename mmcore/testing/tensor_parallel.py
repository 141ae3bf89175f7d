"""How a decoder's tensors are cut for several ranks, by nothing but the rule that places them.

Projections that open a block (q, k, v, gate, up, and the embedding and head) are cut by rows: a rank computes
some heads, or some of the inner features. Those that close one (``out``, ``down``) are cut by columns: their
products are summed over ranks. Norms, positions and the biases of what is summed are on each rank, whole.
(Shoeybi et al. 2019, Megatron-LM.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mmcore.adapter import WeightRule
from mmcore.model.layers import FusedLinear

_ROWS = ("qkv", "q", "kv", "gate_up", "up", "embedding", "head")
_COLUMNS = ("out", "down")


def cut_axis(target: str) -> int | None:
    """Of this parameter: 0 by rows, 1 by columns, None where each rank holds it whole."""
    *_, module, leaf = target.split(".")
    if module in _ROWS:
        return 0
    return 1 if module in _COLUMNS and leaf == "weight" else None


def cut(tensor: Tensor, rule: WeightRule, target: str, module: nn.Module, rank: int, ranks: int) -> Tensor:
    """What ``rank`` of ``ranks`` reads of a checkpoint tensor: one slice of it, the last one the shorter.

    Raises `ValueError` where no slice of the tensor is a rank's part: projections fused in the file, which
    no shard tells apart.
    """
    axis = cut_axis(target)
    if axis is None:
        return tensor
    leaf = target.rpartition(".")[2]
    if isinstance(module, FusedLinear) and not rule.shard and len(module.shards(leaf)) > 1:
        raise ValueError(
            f"{target} has shards, but the rule of {rule.source} names none: no slice is a rank's"
        )
    if axis >= tensor.ndim:
        raise ValueError(f"{rule.source} has {tensor.ndim} axes, so {target} cannot be cut by its columns")
    size = -(-tensor.shape[axis] // ranks)
    return tensor.narrow(axis, min(rank * size, tensor.shape[axis]), _length(tensor.shape[axis], size, rank))


def _length(total: int, size: int, rank: int) -> int:
    return max(0, min(size, total - rank * size))


def put_together(parts: Sequence[Tensor], target: str) -> Tensor:
    """The parameter again, of the parts of all ranks."""
    axis = cut_axis(target)
    return parts[0] if axis is None else torch.cat(list(parts), dim=axis)
