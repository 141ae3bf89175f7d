"""Pieces that every tower and the decoder are made of. Parameters are left uninitialised: a checkpoint
fills them (`mmcore.model.weights`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmcore.decoder_config import Activation, Norm
from mmcore.kernels.layer_norm import layer_norm
from mmcore.kernels.quick_gelu import quick_gelu
from mmcore.kernels.rms_norm import rms_norm
from mmcore.kernels.skinny_linear import skinny_linear

Call = Callable[[Tensor], Tensor]


class Linear(nn.Linear):
    """``nn.Linear`` without the random fill; a few rows take the kernel that is made for them."""

    def reset_parameters(self) -> None:
        """Leave the memory as it is."""

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim == 2:
            return skinny_linear(x, self.weight, self.bias)
        return F.linear(x, self.weight, self.bias)


class FusedLinear(Linear):
    """Several projections of one input as one matrix: the named shards are its blocks of rows, in order.

    Shards that are not in ``biased`` have a bias of zero that no checkpoint tensor fills.
    """

    def __init__(self, in_features: int, sizes: Mapping[str, int], biased: Collection[str] = ()) -> None:
        super().__init__(in_features, sum(sizes.values()), bias=bool(biased))
        self.sizes = tuple(sizes.values())
        self._rows = _row_blocks(sizes)
        self._biased = frozenset(biased)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def shards(self, parameter: str) -> Mapping[str, slice]:
        """Rows of each shard that a checkpoint fills in ``weight`` or ``bias``."""
        if parameter == "weight":
            return self._rows
        return {name: rows for name, rows in self._rows.items() if name in self._biased}

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        """Project [T, in] and give each shard's part, [T, size]."""
        return self(x).split(self.sizes, dim=-1)  # type: ignore[no-any-return]


def _row_blocks(sizes: Mapping[str, int]) -> dict[str, slice]:
    rows, start = {}, 0
    for name, size in sizes.items():
        rows[name] = slice(start, start + size)
        start += size
    return rows


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """[T, heads * D] to [T, heads, D], the same memory."""
    return x.view(x.shape[0], x.shape[1] // head_dim, head_dim)


class Embedding(nn.Embedding):
    """``nn.Embedding`` without the random fill."""

    def reset_parameters(self) -> None:
        """Leave the memory as it is."""


class RMSNorm(nn.Module):
    """Root mean square norm (Zhang and Sennrich 2019), computed in float32."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)

    def add(self, x: Tensor, part: Tensor) -> tuple[Tensor, Tensor]:
        """The norm of ``x + part``, and the sum, in one pass."""
        return rms_norm(part, self.weight, self.eps, x)


class LayerNorm(nn.LayerNorm):
    """``nn.LayerNorm`` without the fill."""

    def reset_parameters(self) -> None:
        """Leave the memory as it is."""

    def forward(self, x: Tensor) -> Tensor:
        return layer_norm(x, self.weight, self.bias, self.eps)[0]

    def add(self, x: Tensor, part: Tensor) -> tuple[Tensor, Tensor]:
        """The norm of ``x + part``, and the sum, in one pass."""
        return layer_norm(part, self.weight, self.bias, self.eps, x)


def make_norm(kind: Norm, width: int, eps: float) -> RMSNorm | LayerNorm:
    return RMSNorm(width, eps) if kind == "rms" else LayerNorm(width, eps)


def _tanh_gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def activation(name: Activation) -> Call:
    table: dict[str, Call] = {
        "silu": F.silu,
        "gelu": F.gelu,
        "gelu_tanh": _tanh_gelu,
        "quick_gelu": quick_gelu,
        "relu": F.relu,
    }
    return table[name]


class MLP(nn.Module):
    """``down(act(up(x)))``, or gated: ``down(act(gate(x)) * up(x))`` with gate and up fused."""

    def __init__(
        self, width: int, intermediate: int, act: Activation, *, gated: bool = False, bias: bool = False
    ) -> None:
        super().__init__()
        sizes = {"gate": intermediate, "up": intermediate}
        if gated:
            self.gate_up = FusedLinear(width, sizes, sizes if bias else ())
        else:
            self.up = Linear(width, intermediate, bias=bias)
        self.down = Linear(intermediate, width, bias=bias)
        self._gated = gated
        self._act = act
        self._call = activation(act)

    def forward(self, x: Tensor) -> Tensor:
        if not self._gated:
            return self.down(self._call(self.up(x)))  # type: ignore[no-any-return]
        if self._act == "silu" and x.ndim == 2:
            both = self.gate_up
            return self.down(skinny_linear(x, both.weight, both.bias, gated=True))  # type: ignore[no-any-return]
        gate, up = self.gate_up.split(x)
        return self.down(self._call(gate) * up)  # type: ignore[no-any-return]
