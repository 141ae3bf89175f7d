"""Attention over a paged KV cache: prefill chunks and decode rows in one call.

A row of a batch is one sequence: ``block_tables[r]`` names the blocks that hold its keys and values, in
order, and ``query[query_starts[r]:query_starts[r + 1]]`` are its tokens of this step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from mmcore.errors import EngineError
from mmcore.kernels.dispatch import use_triton

GATHER_LIMIT = 1 << 18
"""Most values of K that decode rows gather together: past a core's cache, row by row wins."""


def paged_attention_reference(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    query_starts: Tensor,
    context_lens: Tensor,
    scale: float,
    causal: bool = True,
    *,
    bias: Tensor | None = None,
    scales: Tensor | None = None,
) -> Tensor:
    """Row by row, softmax written out, in the dtype of ``query``."""
    key_cache, value_cache = _Caches(key_cache, value_cache, scales, query.dtype).read(lambda cache: cache)
    out = torch.zeros_like(query)
    group = query.shape[1] // key_cache.shape[2]
    bounds = query_starts.tolist()
    for row, context in enumerate(context_lens.tolist()):
        begin, end = bounds[row], bounds[row + 1]
        if begin == end or context == 0:
            continue
        keys, values = (
            cache[block_tables[row].long()].flatten(0, 1)[:context].repeat_interleave(group, dim=1)
            for cache in (key_cache, value_cache)
        )
        scores = torch.einsum("qhd,khd->hqk", query[begin:end], keys) * scale
        mask = _mask(end - begin, context, causal, bias, query.device)
        if mask is not None:
            scores = scores + mask.to(scores.dtype)
        out[begin:end] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), values)
    return out


def paged_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    query_starts: Tensor,
    context_lens: Tensor,
    scale: float,
    causal: bool = True,
    *,
    max_query_len: int,
    bias: Tensor | None = None,
    scales: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Attend ``query`` [T, Hq, D] to cached keys and values; gives [T, Hq, D] (``out`` when it is handed in).

    ``key_cache``, ``value_cache`` [N, B, Hk, D]; ``block_tables`` [R, M] int32, entries past a row's context
    may name any block (0 serves); ``query_starts`` [R + 1] int32; ``context_lens`` [R] int32: keys a row may
    see, those of this step included. Token j of a row's q tokens sees positions ``<= context - q + j``; with
    ``causal=False`` (cross-attention) all of them. A row with context 0 gives zeros.
    ``bias`` [Hq, W] float32 is added to the scaled score at distance ``min(query - key position, W - 1)`` and
    needs ``causal``: a causal decoder's relative positions (Raffel et al. 2020, with ``scale`` 1).
    ``scales`` float32 [2, Hk] (keys, values) go with caches of ``torch.float8_e4m3fn``, see ``store_kv``.
    ``scale`` is positive. ``max_query_len`` bounds a row's tokens.

    On a CUDA device nothing is read back and the grid follows from shapes, ``max_query_len`` and the width of
    ``block_tables`` alone, so the call can be captured in a graph. A replay reads lengths, tables and starts
    anew: these, the caches, ``bias``, ``scales`` and ``out`` must persist, in the caller's hands. Tokens from
    ``query_starts[R]`` on are then undefined; a row of padding has no tokens.
    Raises EngineError on shapes that don't fit.
    """
    _check(query, key_cache, value_cache, block_tables, query_starts, context_lens, causal, bias, scales)
    if use_triton(query):
        from mmcore.kernels.paged_attention_launch import paged_attention_triton

        return paged_attention_triton(
            query, key_cache, value_cache, block_tables, query_starts, context_lens, scale, causal,
            max_query_len=max_query_len, bias=bias, scales=scales, out=out,
        )  # fmt: skip
    out = torch.zeros_like(query) if out is None else out
    bounds, contexts = query_starts.tolist(), context_lens.tolist()
    caches = _Caches(key_cache, value_cache, scales, query.dtype)
    _on_host(query, caches, block_tables, bounds, contexts, scale, causal, bias, out)
    return out


class _Caches(NamedTuple):
    """Keys and values where they lie, and the dtype to read them in."""

    key: Tensor
    value: Tensor
    scales: Tensor | None
    dtype: torch.dtype

    def read(self, pick: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """What ``pick`` takes out of either, [..., Hk, D]. Torch moves bytes, no float8."""
        if self.scales is None:
            return pick(self.key), pick(self.value)
        keys, values = (
            (pick(cache.view(torch.uint8)).view(cache.dtype).float() * scale[:, None]).to(self.dtype)
            for cache, scale in zip((self.key, self.value), self.scales, strict=True)
        )
        return keys, values


def _on_host(
    query: Tensor,
    caches: _Caches,
    block_tables: Tensor,
    bounds: list[int],
    contexts: list[int],
    scale: float,
    causal: bool,
    bias: Tensor | None,
    out: Tensor,
) -> None:
    """Rows of several tokens one by one, decode rows in groups."""
    decode = []
    for row, context in enumerate(contexts):
        begin, end = bounds[row], bounds[row + 1]
        if context == 0:
            out[begin:end] = 0
        elif end - begin == 1:
            decode.append(row)
        elif end > begin:
            keys, values = _gather(caches, block_tables[row : row + 1], [context])
            out[begin:end] = _prefill(query[begin:end], keys, values, scale, causal, bias)
    for rows in _groups(decode, contexts, caches.key):
        if len(rows) == 1:  # views, no indices: most of a small model's time would go into making them
            row, begin = rows[0], bounds[rows[0]]
            keys, values = _gather(caches, block_tables[row : row + 1], [contexts[row]])
            attended = _decode(query[begin : begin + 1], keys, values, [contexts[row]], scale, bias)
            out[begin : begin + 1] = attended
            continue
        tokens = torch.tensor([bounds[row] for row in rows], device=query.device)
        tables = block_tables.index_select(0, torch.tensor(rows, device=query.device))
        lens = [contexts[row] for row in rows]
        gather = _gather if lens[0] == lens[-1] else _gather_padded
        keys, values = gather(caches, tables, lens)
        attended = _decode(query.index_select(0, tokens), keys, values, lens, scale, bias)
        out.index_copy_(0, tokens, attended)


def _gather(caches: _Caches, tables: Tensor, lens: list[int]) -> tuple[Tensor, Tensor]:
    """Keys and values of rows of one length, each [R, Hk, context, D]; a copy unless blocks adjoin."""
    context = lens[0]
    block_size, heads, size = caches.key.shape[1:]
    index = tables[:, : -(-context // block_size)].reshape(-1)
    blocks = index.tolist()
    begin, end = blocks[0], blocks[0] + len(blocks)
    adjoin = blocks == list(range(begin, end))
    keys, values = caches.read(
        lambda cache: (cache[begin:end] if adjoin else cache.index_select(0, index)).view(
            len(tables), -1, heads, size
        )[:, :context]
    )
    return keys.transpose(1, 2), values.transpose(1, 2)


def _gather_padded(caches: _Caches, tables: Tensor, lens: list[int]) -> tuple[Tensor, Tensor]:
    """As ``_gather`` for rows of several lengths; padding repeats a row's first key.

    So a NaN that an earlier owner left behind in a block never reaches the sum as ``0 * NaN``.
    """
    block_size, heads, size = caches.key.shape[1:]
    longest = lens[-1]
    offsets = torch.arange(block_size, device=tables.device)
    slots = (tables[:, : -(-longest // block_size), None] * block_size + offsets).flatten(1)[:, :longest]
    slots = torch.where(_inside(lens, tables.device), slots, slots[:, :1]).view(-1)
    keys, values = caches.read(
        lambda cache: cache.view(-1, heads, size).index_select(0, slots).view(len(lens), longest, heads, size)
    )
    return keys.transpose(1, 2), values.transpose(1, 2)


def _inside(lens: list[int], device: torch.device) -> Tensor:
    """Which of the longest row's positions each row has, [R, S]; ``lens`` ascend."""
    return torch.arange(lens[-1], device=device) < torch.tensor(lens, device=device)[:, None]


def _groups(rows: list[int], contexts: list[int], cache: Tensor) -> list[list[int]]:
    """Rows of similar context together, as many as ``GATHER_LIMIT`` allows; a long row stays alone."""
    groups: list[list[int]] = []
    for row in sorted(rows, key=contexts.__getitem__):
        padded = contexts[row] * cache.shape[2] * cache.shape[3]
        if groups and padded * (len(groups[-1]) + 1) <= GATHER_LIMIT:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _prefill(
    q: Tensor, keys: Tensor, values: Tensor, scale: float, causal: bool, bias: Tensor | None
) -> Tensor:
    """One row's tokens ``q`` [q, Hq, D] over ``keys``, ``values`` [1, Hk, S, D]."""
    whole = causal and bias is None and len(q) == keys.shape[2]
    mask = None if whole else _mask(len(q), keys.shape[2], causal, bias, q.device)
    attended = scaled_dot_product_attention(
        q.transpose(0, 1)[None],
        keys,
        values,
        attn_mask=None if mask is None else mask.to(q.dtype),
        is_causal=whole,
        scale=scale,
        enable_gqa=q.shape[1] != keys.shape[1],
    )
    return attended[0].transpose(0, 1)


def _decode(
    q: Tensor, keys: Tensor, values: Tensor, lens: list[int], scale: float, bias: Tensor | None
) -> Tensor:
    """One token of each row, ``q`` [R, Hq, D]; a group's heads stand in as queries of their KV head."""
    rows, heads, size = q.shape
    grouped = q.view(rows, keys.shape[1], -1, size)
    mask: Tensor | None = None
    if bias is not None:
        ends = torch.tensor(lens, device=q.device)[:, None]
        distance = ends - 1 - torch.arange(lens[-1], device=q.device)  # [R, S]
        by_head = bias[:, distance.clamp(0, bias.shape[1] - 1)].masked_fill(distance < 0, -torch.inf)
        mask = by_head.transpose(0, 1).reshape(rows, keys.shape[1], -1, lens[-1]).to(q.dtype)
    elif lens[0] < lens[-1]:
        mask = _inside(lens, q.device)[:, None, None]
    attended = scaled_dot_product_attention(grouped, keys, values, attn_mask=mask, scale=scale)
    return attended.reshape(rows, heads, size)


def _mask(count: int, context: int, causal: bool, bias: Tensor | None, device: torch.device) -> Tensor | None:
    """Added to the scaled scores of the last ``count`` tokens: [count, context] or [Hq, count, context]."""
    if not causal:
        return None
    queries = torch.arange(context - count, context, device=device)[:, None]
    distance = queries - torch.arange(context, device=device)
    mask = torch.zeros(distance.shape, device=device).masked_fill_(distance < 0, -torch.inf)
    if bias is None:
        return mask
    return mask + bias[:, distance.clamp(0, bias.shape[1] - 1)]


def _check(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    query_starts: Tensor,
    context_lens: Tensor,
    causal: bool,
    bias: Tensor | None,
    scales: Tensor | None,
) -> None:
    heads, kv_heads = query.shape[1], key_cache.shape[2]
    if key_cache.shape != value_cache.shape or query.shape[2] != key_cache.shape[3] or heads % kv_heads:
        raise EngineError(
            f"paged_attention: query {tuple(query.shape)} does not fit caches {tuple(key_cache.shape)} and "
            f"{tuple(value_cache.shape)} [blocks, block size, KV heads, head size]; query heads must be a "
            "multiple of KV heads"
        )
    rows = block_tables.shape[0]
    if query_starts.shape[0] != rows + 1 or context_lens.shape[0] != rows:
        raise EngineError(
            f"paged_attention: {rows} block tables, {context_lens.shape[0]} context lengths and "
            f"{query_starts.shape[0]} query starts; wanted R, R and R + 1"
        )
    if bias is not None and (not causal or bias.shape[0] != heads):
        raise EngineError(f"paged_attention: a bias needs causal=True and one row for each of {heads} heads")
    if scales is not None and scales.shape != (2, kv_heads):
        raise EngineError(f"paged_attention: scales {tuple(scales.shape)} must be [2, {kv_heads} KV heads]")
