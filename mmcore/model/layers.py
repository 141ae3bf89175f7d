"""Pieces that every tower and the decoder are made of. Parameters are left uninitialised: a checkpoint
fills them (`mmcore.model.weights`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import torch
from torch import Tensor, nn

from mmcore.decoder_config import Activation, Norm
from mmcore.kernels.activations import ACTIVATIONS
from mmcore.kernels.layer_norm import layer_norm
from mmcore.kernels.rms_norm import rms_norm
from mmcore.kernels.skinny_linear import RowNorm, skinny_linear

Call = Callable[[Tensor], Tensor]


class Linear(nn.Linear):
    """``nn.Linear`` without the random fill; a few rows take the kernel that is made for them."""

    def reset_parameters(self) -> None:
        """Leave the memory as it is."""

    def forward(
        self,
        x: Tensor,
        residual: Tensor | None = None,
        *,
        norm: RowNorm | None = None,
        act: str | None = None,
    ) -> Tensor:
        """``norm`` is taken of ``x`` [..., in] first, ``act`` of the product, ``residual`` is added last."""
        return skinny_linear(x, self.weight, self.bias, residual, norm=norm, act=act)


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

    def split(self, x: Tensor, norm: RowNorm | None = None) -> tuple[Tensor, ...]:
        """Project [T, in] and give each shard's part, [T, size]."""
        return self(x, norm=norm).split(self.sizes, dim=-1)  # type: ignore[no-any-return]


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

    def of_rows(self) -> RowNorm:
        """To be taken by a linear layer of what it reads."""
        return RowNorm(self.weight, None, self.eps)


class LayerNorm(nn.LayerNorm):
    """``nn.LayerNorm`` without the fill."""

    def reset_parameters(self) -> None:
        """Leave the memory as it is."""

    def forward(self, x: Tensor) -> Tensor:
        return layer_norm(x, self.weight, self.bias, self.eps)[0]

    def add(self, x: Tensor, part: Tensor) -> tuple[Tensor, Tensor]:
        """The norm of ``x + part``, and the sum, in one pass."""
        return layer_norm(part, self.weight, self.bias, self.eps, x)

    def of_rows(self) -> RowNorm:
        """To be taken by a linear layer of what it reads."""
        return RowNorm(self.weight, self.bias, self.eps)


def make_norm(kind: Norm, width: int, eps: float) -> RMSNorm | LayerNorm:
    return RMSNorm(width, eps) if kind == "rms" else LayerNorm(width, eps)


def activation(name: Activation) -> Call:
    return ACTIVATIONS[name]


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

    def forward(self, x: Tensor, residual: Tensor | None = None, norm: RowNorm | None = None) -> Tensor:
        """``x`` [T, H]; ``residual`` is added to the result, ``norm`` is taken of ``x`` first."""
        if not self._gated:
            return self.down(self.up(x, norm=norm, act=self._act), residual)  # type: ignore[no-any-return]
        if self._act == "silu" and x.ndim == 2:
            both = self.gate_up
            hidden = skinny_linear(x, both.weight, both.bias, norm=norm, gated=True)
            return self.down(hidden, residual)  # type: ignore[no-any-return]
        gate, up = self.gate_up.split(x, norm)
        return self.down(self._call(gate) * up, residual)  # type: ignore[no-any-return]
