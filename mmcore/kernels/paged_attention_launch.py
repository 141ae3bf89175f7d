"""What ``paged_attention`` launches on a GPU: tile shapes, splits and grids, from shapes the host knows."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from mmcore.errors import CheckpointError, EngineError
from mmcore.kernels.chain_triton import chains, pdl
from mmcore.kernels.launch import Launcher
from mmcore.kernels.paged_attention_triton import LOG2E, attend, join

MAX_HEAD_SIZE = 256
MAX_SPLITS = 64
MIN_SPLIT = 64
"""Fewest positions that are worth a program of their own."""
SHORT_CONTEXT = 512
"""Positions that one program walks through sooner than a second kernel could join the parts."""


class Tile(NamedTuple):
    """Shape of a program's work: query rows, positions a KV tile, warps, pipeline stages."""

    m: int
    n: int
    warps: int
    stages: int


LONG_CONTEXT = 4096
"""Positions of a stretch where rows of one token are among others."""
SHORT_PROMPT = 512
"""Tokens; 14 % between the tiles at 64 prompts of 322."""


@cache
def choose_tile(group: int, size: int, itemsize: int, max_query_len: int, few: bool) -> Tile:
    """One configuration by shape; ``itemsize`` is the cache's. Decode is bound by bytes in flight, prefill by
    its products; where programs are ``few``, both by how long one takes.

    The block table is read one stage before the KV tile it points to, so that two KV tiles are in flight from
    five stages on. A single row of the matrix unit's tiles keeps two warps busy, four wait for each other.
    Short prompts waste less of short KV tiles. The tiles are the fastest of `benchmarks/kernel_sweep.py`.
    """
    if itemsize == 4:
        return Tile(max(16, power_of_2(group)), 32, 8, 2)
    wide = size > 128
    m = min(max(power_of_2(group * max_query_len), 16), 64 if wide else 128)
    m = max(m, power_of_2(group))
    if wide:
        return Tile(m, 32, 4, 3)
    if m == 16:
        return _decode_tile(group, size, itemsize, few)
    if m <= 32:
        return Tile(m, 64, 4, 5)
    if max_query_len <= SHORT_PROMPT:
        return Tile(m, 32, 4, 4)
    return Tile(m, 128, 8, 2) if few and m == 128 else Tile(m, 64, 4, 3)


def _decode_tile(group: int, size: int, itemsize: int, few: bool) -> Tile:
    if itemsize == 1:
        return Tile(16, 64, 2, 7)
    if size > 64:
        return Tile(16, 64, 2, 4 if group == 1 else 5)
    return Tile(16, 128, 4, 2) if few else Tile(16, 64, 1, 5)


def power_of_2(n: int) -> int:
    """The smallest power of two that is not under ``n``."""
    return 1 << max(n - 1, 0).bit_length()


@cache
def _multiprocessors(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count) if device.type == "cuda" else 1


def _count_splits(programs: int, longest: int, max_query_len: int, room: int) -> int:
    """``room`` programs for pure decode; beside prefill only the longest contexts are cut."""
    if max_query_len > 1:
        return min(8, -(-longest // LONG_CONTEXT))
    if longest <= SHORT_CONTEXT:
        return 1
    room //= max(programs, 1)
    return max(1, min(room, -(-longest // MIN_SPLIT), MAX_SPLITS))


def _count_programs(rows: int, tokens: int, group: int, kv_heads: int) -> int:
    """Before any split, of the largest tiles."""
    return (rows + tokens * group // 128) * kv_heads


def _stretches(query: Tensor, rows: int, splits: int) -> tuple[Tensor, Tensor]:
    """What `join` joins: sums [R, splits, Hq, D] and their weights as logarithms; a stub without splits."""
    shape = (rows, splits, *query.shape[1:]) if splits > 1 else (1, 1)
    return query.new_empty(shape, dtype=torch.float32), query.new_empty(shape[:-1], dtype=torch.float32)


def _check(query: Tensor, key_cache: Tensor, value_cache: Tensor, block_tables: Tensor) -> None:
    if key_cache.shape[3] > MAX_HEAD_SIZE:
        raise CheckpointError(
            f"paged_attention: head size {key_cache.shape[3]} is above {MAX_HEAD_SIZE}, the largest "
            "the kernel holds; run the checkpoint with device='cpu'"
        )
    if key_cache.stride() != value_cache.stride() or {
        x.stride(-1) for x in (query, key_cache, block_tables)
    } != {1}:
        raise EngineError("paged_attention: caches must be strided alike, and last dimensions be contiguous")


def paged_attention_triton(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    query_starts: Tensor,
    context_lens: Tensor,
    scale: float,
    causal: bool,
    *,
    max_query_len: int,
    bias: Tensor | None = None,
    scales: Tensor | None = None,
    out: Tensor | None = None,
    splits: int | None = None,
    tile: Tile | None = None,
) -> Tensor:
    """As ``paged_attention``; ``splits`` and ``tile`` override what is chosen by shape."""
    _check(query, key_cache, value_cache, block_tables)
    out = torch.empty_like(query) if out is None else out
    rows, heads, size = len(context_lens), *query.shape[1:]
    pairs = scales is not None
    if pairs:  # two values of e4m3 are one element
        key_cache, value_cache = key_cache.view(torch.uint16), value_cache.view(torch.uint16)
    _, block_size, kv_heads, length = key_cache.shape
    group, device = heads // kv_heads, query.device
    room = 2 * _multiprocessors(device)  # programs that the card holds at once
    few = _count_programs(rows, len(query), group, kv_heads) <= (room if max_query_len > 1 else room // 4)
    itemsize = 1 if pairs else key_cache.element_size()
    longest = block_tables.shape[1] * block_size
    tile = tile or choose_tile(group, size, itemsize, max_query_len, few)
    one_tile = group * max_query_len <= tile.m
    tiles = rows if one_tile else len(query) // (tile.m // group) + rows
    if splits is None:
        splits = _count_splits(tiles * kv_heads, longest, max_query_len, room)
    partial, partial_peak = _stretches(query, rows, splits)
    chained = chains(device)
    early = chained and few and max_query_len == 1
    narrow = len(key_cache) * key_cache.stride(0) < 1 << 32
    constants = (
        query.stride(0), query.stride(1), *out.stride()[:2], *key_cache.stride()[:3],
        group, length, block_size, tile.m, tile.n, max(16, power_of_2(length)),
        causal, bias is not None, pairs, narrow, one_tile, splits > 1, chained,
    )  # fmt: skip
    if rows:
        tensors = query, key_cache, value_cache, out
        key = (*constants, early, tile, device, query.dtype, key_cache.dtype, _alignment(tensors))
        _attend(
            key, (tiles, kv_heads, splits),
            (
                query, key_cache, value_cache, block_tables, query_starts, context_lens,
                partial if bias is None else bias, partial if scales is None else scales,
                out, partial, partial_peak, scale * LOG2E.value,
                rows, block_tables.stride(0), 0 if bias is None else bias.shape[1], splits, *constants,
            ),
            num_warps=tile.warps, num_stages=tile.stages, **pdl(early),
        )  # fmt: skip
    if splits > 1:
        _join_splits(partial, partial_peak, query_starts, out, chained)
    return out


_attend, _join = Launcher(attend), Launcher(join)


def _alignment(tensors: tuple[Tensor, ...]) -> tuple[bool, ...]:
    return tuple(x.data_ptr() % 16 == 0 for x in tensors)


def _join_splits(
    partial: Tensor, partial_peak: Tensor, query_starts: Tensor, out: Tensor, chained: bool
) -> None:
    rows, splits, heads, size = partial.shape
    constants = *out.stride()[:2], size, max(16, power_of_2(size)), power_of_2(splits), chained
    _join(
        (*constants, out.device, out.dtype, _alignment((out,))),
        (rows, heads, 1),
        (partial, partial_peak, query_starts, out, splits, *constants),
        num_warps=4,
        **pdl(chained),
    )
