"""Attention at published shapes: over paged KV, and inside the segments of a tower."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from mmcore.bench.kernel_cell import COLD_BYTES, Call, Ceilings, Cell, Sides, cold_sets, dtype_on
from mmcore.kernels.paged_attention import paged_attention
from mmcore.kernels.varlen_attention import varlen_attention


@dataclass(frozen=True)
class PagedCell:
    """``rows`` times ``tokens`` queries over ``context`` positions, blocks in random order."""

    rows: int
    tokens: int
    context: int
    heads: tuple[int, int] = (28, 4)
    size: int = 128
    block: int = 16
    causal: bool = True
    fp8: bool = False

    @property
    def kernel(self) -> str:
        return "paged_attention"

    @property
    def shape(self) -> str:
        queries = "" if self.tokens == 1 else f" x {self.tokens} tokens"
        kind = " fp8" if self.fp8 else ""
        return f"{self.rows}{queries} x {self.context:,}, {self.heads[0]}/{self.heads[1]} x {self.size}" + (
            f", blocks of {self.block}{kind}"
        )

    @property
    def kv_bytes(self) -> int:
        return self.rows * self.context * self.heads[1] * self.size * 2 * (1 if self.fp8 else 2)

    @property
    def operations(self) -> int:
        seen = self.tokens * self.context - (self.tokens * (self.tokens - 1) // 2 if self.causal else 0)
        return 4 * self.rows * seen * self.heads[0] * self.size

    def floor(self, ceilings: Ceilings) -> float:
        return max(self.kv_bytes / ceilings.read, self.operations / ceilings.math)

    def sides(self, device: torch.device, cold_bytes: int = COLD_BYTES) -> Sides:
        pool = _Pool(self, device, cold_bytes)
        theirs = [] if self.fp8 else [pool.dense_call(table) for table in pool.tables]
        return Sides([pool.paged_call(table) for table in pool.tables], theirs)

    def calls(self, **options: Any) -> Iterator[Call]:
        """On a GPU, with ``options`` of the launcher (a tile, splits) instead of what it chooses."""
        from mmcore.kernels.paged_attention_launch import paged_attention_triton

        pool = _Pool(self, torch.device("cuda"), COLD_BYTES)
        return (partial(pool.paged_call(table, paged_attention_triton), **options) for table in pool.tables)


class _Pool:
    """Queries and a KV pool with as many sets of blocks as are cold together."""

    def __init__(self, cell: PagedCell, device: torch.device, cold_bytes: int) -> None:
        self._cell = cell
        width = -(-cell.context // cell.block)
        sets = cold_sets(cell.kv_bytes, cold_bytes)
        blocks = sets * cell.rows * width
        dtype = dtype_on(device)
        shape = (blocks, cell.block, cell.heads[1], cell.size)
        self._caches = [torch.empty(shape, dtype=dtype, device=device).normal_() for _ in range(2)]
        self._scales: Tensor | None = None
        if cell.fp8:
            self._caches = [cache.to(torch.float8_e4m3fn) for cache in self._caches]
            self._scales = torch.ones(2, cell.heads[1], device=device)
        self.tables = torch.randperm(blocks, device=device).int().view(sets, cell.rows, width)
        queries = (cell.rows * cell.tokens, cell.heads[0], cell.size)
        self._query = torch.randn(queries, dtype=dtype, device=device)
        self._out = torch.empty_like(self._query)
        self._starts = torch.arange(cell.rows + 1, dtype=torch.int32, device=device) * cell.tokens
        self._lens = torch.full((cell.rows,), cell.context, dtype=torch.int32, device=device)

    def paged_call(self, table: Tensor, attend: Any = paged_attention) -> Call:
        cell = self._cell
        operands = (self._query, *self._caches, table, self._starts, self._lens, cell.size**-0.5, cell.causal)
        return partial(attend, *operands, max_query_len=cell.tokens, out=self._out, scales=self._scales)

    def dense_call(self, table: Tensor) -> Call:
        """torch over the same keys and values without blocks."""
        cell = self._cell
        flat = table.long().view(-1)
        keys, values = (
            cache[flat].view(cell.rows, -1, *cache.shape[2:])[:, : cell.context].transpose(1, 2).contiguous()
            for cache in self._caches
        )
        query = self._query.view(cell.rows, cell.tokens, *self._query.shape[1:]).transpose(1, 2)
        causal, gqa = cell.causal and cell.tokens > 1, cell.heads[0] != cell.heads[1]

        def call() -> Tensor:
            out = scaled_dot_product_attention(query, keys, values, is_causal=causal, enable_gqa=gqa)
            return out.transpose(1, 2).flatten(0, 1)

        return call


@dataclass(frozen=True)
class SegmentCell:
    """Bidirectional attention inside ``count`` segments of one length."""

    count: int
    length: int
    heads: int
    size: int

    @property
    def kernel(self) -> str:
        return "varlen_attention"

    @property
    def shape(self) -> str:
        return f"{self.count} x {self.length:,}, {self.heads} x {self.size}"

    def floor(self, ceilings: Ceilings) -> float:
        return 4 * self.count * self.length**2 * self.heads * self.size / ceilings.math

    def sides(self, device: torch.device, cold_bytes: int = COLD_BYTES) -> Sides:
        """One set: keys and values are read again and again by design."""
        shape = (self.count * self.length, 3 * self.heads, self.size)
        q, k, v = torch.randn(shape, device=device).to(dtype_on(device)).chunk(3, dim=1)
        bounds = list(accumulate([self.length] * self.count, initial=0))
        starts = torch.tensor(bounds, dtype=torch.int32, device=device)
        query, keys, values = (x.view(self.count, -1, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))
        return Sides(
            [lambda: varlen_attention(q, k, v, starts, self.length, self.size**-0.5)],
            [lambda: scaled_dot_product_attention(query, keys, values).transpose(1, 2).flatten(0, 1)],
        )


def attention_cells() -> Iterator[Cell]:
    """Decode over batch and context, at both block sizes; other models' rows; prefill; float8; towers."""
    longest = {1: 32768, 8: 32768, 64: 8192, 256: 2048}
    for rows, most in longest.items():
        for context in (c for c in (1024, 2048, 4096, 8192, 16384, 32768) if c <= most):
            blocks = (16, 64) if context in (1024, 8192, 32768) else (16,)
            yield from (PagedCell(rows, 1, context, block=block) for block in blocks)
    yield from (PagedCell(rows, 1, 640, heads=(32, 32)) for rows in (64, 1))
    yield from (PagedCell(rows, 1, 1500, heads=(20, 20), size=64, causal=False) for rows in (16, 1))
    yield from (PagedCell(1, tokens, tokens) for tokens in (1024, 8192))
    yield from (replace(PagedCell(rows, 1, 8192), fp8=True) for rows in (64, 8))
    yield from (SegmentCell(1, 3996, 16, 80), SegmentCell(64, 1024, 16, 80), SegmentCell(16, 1500, 20, 64))
    yield from (SegmentCell(64, 577, 16, 64), SegmentCell(16, 729, 16, 72))
