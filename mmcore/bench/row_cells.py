"""Operations by row at published widths: norms, gates, rotation, storing keys, products of few rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from mmcore.bench.kernel_cell import COLD_BYTES, Call, Ceilings, Cell, Sides, cold_sets, dtype_on
from mmcore.kernels.argmax import argmax
from mmcore.kernels.layer_norm import layer_norm
from mmcore.kernels.quick_gelu import quick_gelu
from mmcore.kernels.rms_norm import rms_norm
from mmcore.kernels.rotary import rotary
from mmcore.kernels.skinny_linear import skinny_linear
from mmcore.kernels.store_kv import store_kv
from mmcore.kernels.swiglu import swiglu

HEAD = 128
BLOCK = 16
EPS = 1e-6

Pair = Callable[[Tensor], tuple[Call, Call]]
"""From one set of rows [T, width] to our call and torch's."""


@dataclass(frozen=True)
class RowCell:
    """``name`` on ``tokens`` rows of ``width`` values."""

    name: str
    tokens: int
    width: int

    @property
    def kernel(self) -> str:
        return self.name

    @property
    def shape(self) -> str:
        return f"{self.tokens:,} x {self.width:,}"

    def _bytes(self, itemsize: int = 2) -> float:
        return MOVED[self.name] * itemsize * self.tokens * self.width

    def floor(self, ceilings: Ceilings) -> float:
        return self._bytes() / ceilings.copy

    def sides(self, device: torch.device, cold_bytes: int = COLD_BYTES) -> Sides:
        sets = cold_sets(self._bytes(), cold_bytes, least=2)
        rows = torch.randn(sets, self.tokens, self.width, device=device).to(dtype_on(device))
        pairs = [PAIRS[self.name](x) for x in rows]
        return Sides([ours for ours, _ in pairs], [theirs for _, theirs in pairs])


def _rms_norm(x: Tensor) -> tuple[Call, Call]:
    weight, residual = x.new_ones(x.shape[-1]), torch.randn_like(x)

    def theirs() -> tuple[Tensor, Tensor]:
        total = x + residual
        return F.rms_norm(total, weight.shape, weight, EPS), total

    return lambda: rms_norm(x, weight, EPS, residual), theirs


def _layer_norm(x: Tensor) -> tuple[Call, Call]:
    weight, bias, residual = x.new_ones(x.shape[-1]), x.new_zeros(x.shape[-1]), torch.randn_like(x)

    def theirs() -> tuple[Tensor, Tensor]:
        total = x + residual
        return F.layer_norm(total, weight.shape, weight, bias, EPS), total

    return lambda: layer_norm(x, weight, bias, EPS, residual), theirs


def _swiglu(x: Tensor) -> tuple[Call, Call]:
    gate, up = x.chunk(2, dim=-1)
    return lambda: swiglu(x), lambda: F.silu(gate) * up


def _quick_gelu(x: Tensor) -> tuple[Call, Call]:
    return lambda: quick_gelu(x), lambda: x * torch.sigmoid(1.702 * x)


def _rotary(x: Tensor) -> tuple[Call, Call]:
    """The last four heads are keys."""
    heads = x.view(len(x), -1, HEAD)
    q, k = heads[:, :-4], heads[:, -4:]
    cos, sin = torch.randn(2, len(x), HEAD // 2, device=x.device)

    def turned(part: Tensor) -> Tensor:
        first, second = part.float().chunk(2, dim=-1)
        c, s = cos[:, None], sin[:, None]
        return torch.cat([first * c - second * s, second * c + first * s], dim=-1).to(part.dtype)

    return lambda: rotary(q, k, cos, sin), lambda: (turned(q), turned(k))


def _store_kv(x: Tensor) -> tuple[Call, Call]:
    keys, values = x.view(len(x), -1, HEAD).chunk(2, dim=1)
    caches = [x.new_zeros(len(x) // BLOCK + 1, BLOCK, *keys.shape[1:]) for _ in range(4)]
    slots = torch.randperm(len(x), device=x.device)

    def ours() -> list[Tensor]:
        store_kv(keys, values, caches[0], caches[1], slots)
        return caches[:2]

    def theirs() -> list[Tensor]:
        for part, cache in zip((keys, values), caches[2:], strict=True):
            cache.view(-1, *part.shape[1:]).index_copy_(0, slots, part)
        return caches[2:]

    return ours, theirs


PAIRS: Mapping[str, Pair] = {
    "rms_norm": _rms_norm,
    "layer_norm": _layer_norm,
    "swiglu": _swiglu,
    "quick_gelu": _quick_gelu,
    "rotary": _rotary,
    "store_kv": _store_kv,
}
MOVED = {"rms_norm": 4, "layer_norm": 4, "swiglu": 1.5, "quick_gelu": 2, "rotary": 2, "store_kv": 2}
"""Values read and written for each value of the input."""


@dataclass(frozen=True)
class LinearCell:
    """A product of few rows, whose weights are read once; ``gated``: with the gate of an MLP after it."""

    rows: int
    width: int
    depth: int
    gated: bool = False

    @property
    def kernel(self) -> str:
        return "skinny_linear"

    @property
    def shape(self) -> str:
        return f"{self.rows} x {self.depth:,} to {self.width:,}{' gated' if self.gated else ''}"

    def _bytes(self, itemsize: int = 2) -> int:
        return self.width * (1 + self.gated) * self.depth * itemsize

    def floor(self, ceilings: Ceilings) -> float:
        return self._bytes() / ceilings.read

    def sides(self, device: torch.device, cold_bytes: int = COLD_BYTES) -> Sides:
        sets, outputs = cold_sets(self._bytes(), cold_bytes, least=2), self.width * (1 + self.gated)
        x = torch.randn(self.rows, self.depth, device=device).to(dtype_on(device))
        weights = [torch.randn(outputs, self.depth, device=device).to(x.dtype) for _ in range(sets)]
        return Sides(
            [lambda w=w: skinny_linear(x, w, gated=self.gated) for w in weights],  # type: ignore[misc]
            [lambda w=w: self._library(x, w) for w in weights],  # type: ignore[misc]
        )

    def _library(self, x: Tensor, weight: Tensor) -> Tensor:
        out = F.linear(x, weight)
        if not self.gated:
            return out
        gate, up = out.chunk(2, dim=-1)
        return F.silu(gate) * up


@dataclass(frozen=True)
class ChoiceCell:
    """The likeliest of a vocabulary, row by row."""

    rows: int
    vocabulary: int

    @property
    def kernel(self) -> str:
        return "argmax"

    @property
    def shape(self) -> str:
        return f"{self.rows} x {self.vocabulary:,}"

    def floor(self, ceilings: Ceilings) -> float:
        return 2 * self.rows * self.vocabulary / ceilings.read

    def sides(self, device: torch.device, cold_bytes: int = COLD_BYTES) -> Sides:
        sets = cold_sets(2 * self.rows * self.vocabulary, cold_bytes, least=2)
        logits = [
            torch.randn(self.rows, self.vocabulary, device=device).to(dtype_on(device)) for _ in range(sets)
        ]
        return Sides([lambda x=x: argmax(x) for x in logits], [lambda x=x: x.max(-1) for x in logits])  # type: ignore[misc]


def row_cells() -> Iterator[Cell]:
    widths = {"store_kv": (1024, 8192), "rms_norm": (3584,), "rotary": (4096,), "swiglu": (37888,)}
    widths |= {"layer_norm": (1280,), "quick_gelu": (5120,)}
    for name, sizes in widths.items():
        yield from (RowCell(name, tokens, width) for width in sizes for tokens in (1, 64, 8192))
    linears = [(4608, 3584, False), (3584, 3584, False), (18944, 3584, True), (3584, 18944, False)]
    for rows in (1, 8):
        yield from (LinearCell(rows, *shape) for shape in (*linears, (152064, 3584, False)))
    yield from (ChoiceCell(rows, 152064) for rows in (1, 64))
