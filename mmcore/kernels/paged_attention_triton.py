"""Triton kernels of ``paged_attention``: ``attend`` for prefill chunks and decode rows, ``join`` for splits.

A program holds ``BLOCK_Q`` tokens of one row times the ``GROUP`` query heads of one KV head in the M
dimension of its products: a KV tile is read once for the whole group. Rows of a single token may be cut into
``splits`` stretches of their context, to fill the card when rows are few (flash decoding, Dao et al. 2023).
Softmax runs online in base 2 and float32 (Milakov and Gimelshein 2018, arXiv 1805.02867).
"""
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _find_row(query_starts, tile, rows, BLOCK_Q: tl.constexpr):
    """The last row whose first tile, ``query_starts[r] // BLOCK_Q + r``, is not past ``tile``."""
    low = 0
    high = rows
    while high - low > 1:
        middle = (low + high) // 2
        before = tl.load(query_starts + middle) // BLOCK_Q + middle <= tile
        low = tl.where(before, middle, low)
        high = tl.where(before, high, middle)
    return low


@triton.jit
def _span(context, splits, BLOCK_N: tl.constexpr):
    """Positions of one split: whole KV tiles."""
    return tl.cdiv(tl.cdiv(context, splits), BLOCK_N) * BLOCK_N


@triton.jit
def _attend_range(
    acc,
    peak,
    total,
    q,
    keys,
    values,
    table,
    bias,
    bias_width,
    position,
    limit,
    low,
    high,
    BLOCK_STRIDE: tl.constexpr,
    SLOT_STRIDE: tl.constexpr,
    scale,
    SIZE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Fold positions ``low`` to ``high`` into the running softmax; unmasked: whole tiles that all may see."""
    d = tl.arange(0, BLOCK_D)
    for start in range(low, high, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        inside = n < high
        if BLOCK_SIZE % BLOCK_N == 0:
            block = tl.load(table + start // BLOCK_SIZE)  # a tile lies in one block
        elif MASKED:
            block = tl.load(table + n // BLOCK_SIZE, mask=inside, other=0)
        else:
            block = tl.load(table + n // BLOCK_SIZE)
        offset = block.to(tl.int64) * BLOCK_STRIDE + (n % BLOCK_SIZE) * SLOT_STRIDE
        if MASKED:
            k = tl.load(
                keys + offset[None, :] + d[:, None], mask=inside[None, :] & (d < SIZE)[:, None], other=0.0
            )
        elif SIZE == BLOCK_D:
            k = tl.load(keys + offset[None, :] + d[:, None])
        else:
            k = tl.load(keys + offset[None, :] + d[:, None], mask=(d < SIZE)[:, None], other=0.0)
        scores = tl.dot(q, k.to(q.dtype), input_precision="ieee")
        if HAS_BIAS:
            distance = tl.maximum(tl.minimum(position[:, None] - n[None, :], bias_width - 1), 0)
            scores = scores * scale + tl.load(bias[:, None] + distance) * LOG2E
        if MASKED:
            scores = tl.where(n[None, :] < limit[:, None], scores, -float("inf"))
        if HAS_BIAS:
            new_peak = tl.maximum(peak, tl.max(scores, 1))
        else:
            new_peak = tl.maximum(peak, tl.max(scores, 1) * scale)
        shift = new_peak
        if MASKED:
            shift = tl.where(new_peak == -float("inf"), 0.0, new_peak)
        weights = tl.exp2((scores if HAS_BIAS else scores * scale) - shift[:, None])  # one multiply-add
        fade = tl.exp2(peak - shift)
        total = total * fade + tl.sum(weights, 1)
        if MASKED:
            v = tl.load(
                values + offset[:, None] + d[None, :], mask=inside[:, None] & (d < SIZE)[None, :], other=0.0
            )
        elif SIZE == BLOCK_D:
            v = tl.load(values + offset[:, None] + d[None, :])
        else:
            v = tl.load(values + offset[:, None] + d[None, :], mask=(d < SIZE)[None, :], other=0.0)
        acc = acc * fade[:, None]
        acc = tl.dot(weights.to(q.dtype), v.to(q.dtype), acc, input_precision="ieee")
        peak = new_peak
    return acc, peak, total


@triton.jit(
    do_not_specialize=["rows", "table_stride", "bias_width", "splits"],
    do_not_specialize_on_alignment=["block_tables", "query_starts", "context_lens", "bias", "kv_scales"],
)
def attend(
    query,
    key_cache,
    value_cache,
    block_tables,
    query_starts,
    context_lens,
    bias,
    kv_scales,
    out,
    partial,
    partial_peak,
    scale,
    rows,
    table_stride,
    bias_width,
    splits,
    QUERY_STRIDE: tl.constexpr,
    QUERY_HEAD_STRIDE: tl.constexpr,
    OUT_STRIDE: tl.constexpr,
    OUT_HEAD_STRIDE: tl.constexpr,
    BLOCK_STRIDE: tl.constexpr,
    SLOT_STRIDE: tl.constexpr,
    HEAD_STRIDE: tl.constexpr,
    GROUP: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_SCALES: tl.constexpr,
    ONE_TILE: tl.constexpr,
    SPLIT: tl.constexpr,
    CHAINED: tl.constexpr,
):
    if CHAINED:
        gdc_launch_dependents()
    BLOCK_Q: tl.constexpr = BLOCK_M // GROUP
    row = tl.program_id(0)
    first = 0
    if not ONE_TILE:
        tile = tl.num_programs(0) - 1 - tl.program_id(0)  # the longest stretches of a causal row come first
        row = _find_row(query_starts, tile, rows, BLOCK_Q)
    begin = tl.load(query_starts + row)
    count = tl.load(query_starts + row + 1) - begin
    if not ONE_TILE:
        first = (tile - begin // BLOCK_Q - row) * BLOCK_Q
    if first >= count:
        return
    context = tl.load(context_lens + row)
    low = 0
    high = context
    if CAUSAL:
        high = tl.minimum(context, context - count + first + BLOCK_Q)
    if SPLIT:
        split = tl.program_id(2)
        span = tl.where(count == 1, _span(context, splits, BLOCK_N), context)
        low = split * span
        high = tl.minimum(high, low + span)
    m = tl.arange(0, BLOCK_M)
    d = tl.arange(0, BLOCK_D)
    token = first + m // GROUP
    head = tl.program_id(1) * GROUP + m % GROUP
    wanted = (m < BLOCK_Q * GROUP) & (token < count)
    if SPLIT:
        cell = (row.to(tl.int64) * splits + split) * (GROUP * tl.num_programs(1)) + head
        alone = wanted & (tl.zeros_like(m) + count == 1)
        if (low >= high) & (split > 0):  # no share in the sum: `join` need not know the context
            tl.store(partial_peak + cell, tl.full([BLOCK_M], -float("inf"), tl.float32), mask=alone)
            return
    cells = wanted[:, None] & (d < SIZE)[None, :]
    index = (begin + token).to(tl.int64)
    q = tl.load(
        query + (index * QUERY_STRIDE + head * QUERY_HEAD_STRIDE)[:, None] + d[None, :], mask=cells, other=0.0
    )
    if HAS_SCALES:
        q = q.to(tl.float16)  # what e4m3 widens to in one instruction
        scale *= tl.load(kv_scales + tl.program_id(1))
    position = context - count + token
    limit = tl.zeros([BLOCK_M], tl.int32) + context
    seen_by_all = high
    if CAUSAL:
        limit = position + 1
        seen_by_all = tl.minimum(high, context - count + first + 1)
    middle = low + tl.maximum(seen_by_all - low, 0) // BLOCK_N * BLOCK_N

    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    peak = tl.full([BLOCK_M], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    keys = key_cache + tl.program_id(1) * HEAD_STRIDE
    values = value_cache + tl.program_id(1) * HEAD_STRIDE
    table = block_tables + row.to(tl.int64) * table_stride
    bias += tl.where(wanted, head, 0) * bias_width
    acc, peak, total = _attend_range(
        acc, peak, total, q, keys, values, table, bias, bias_width, position, limit, low, middle,
        BLOCK_STRIDE, SLOT_STRIDE, scale, SIZE, BLOCK_SIZE, BLOCK_N, BLOCK_D, HAS_BIAS, False,
    )  # fmt: skip
    acc, peak, total = _attend_range(
        acc, peak, total, q, keys, values, table, bias, bias_width, position, limit, middle, high,
        BLOCK_STRIDE, SLOT_STRIDE, scale, SIZE, BLOCK_SIZE, BLOCK_N, BLOCK_D, HAS_BIAS, True,
    )  # fmt: skip
    total = tl.where(total > 0, total, 1.0)  # a row without context gives zeros
    acc = acc / total[:, None]
    if HAS_SCALES:
        acc *= tl.load(kv_scales + tl.num_programs(1) + tl.program_id(1))
    if SPLIT:
        tl.store(partial_peak + cell, peak + tl.log2(total), mask=alone)
        tl.store(partial + cell[:, None] * SIZE + d[None, :], acc, mask=cells & alone[:, None])
        cells = cells & ~alone[:, None]
    place = (index * OUT_STRIDE + head * OUT_HEAD_STRIDE)[:, None] + d[None, :]
    tl.store(out + place, acc.to(out.dtype.element_ty), mask=cells)


@triton.jit(do_not_specialize=["splits"], do_not_specialize_on_alignment=["query_starts"])
def join(
    partial,
    partial_peak,
    query_starts,
    out,
    splits,
    OUT_STRIDE: tl.constexpr,
    OUT_HEAD_STRIDE: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_S: tl.constexpr,
    CHAINED: tl.constexpr,
):
    """Weigh the splits of a single-token row by their share of the softmax's sum."""
    row = tl.program_id(0)
    head = tl.program_id(1)
    begin = tl.load(query_starts + row)
    count = tl.load(query_starts + row + 1) - begin
    s = tl.arange(0, BLOCK_S)
    d = tl.arange(0, BLOCK_D)
    cell = (row.to(tl.int64) * splits + s) * tl.num_programs(1) + head
    if CHAINED:
        gdc_wait()  # this kernel is started while `attend` still runs
    share = tl.load(partial_peak + cell, mask=s < splits, other=-float("inf"))
    share = tl.where(count == 1, share, -float("inf"))  # other rows have no splits
    peak = tl.max(share, 0)
    share = tl.exp2(share - tl.where(peak == -float("inf"), 0.0, peak))
    cells = (s < splits)[:, None] & (d < SIZE)[None, :]
    parts = tl.load(partial + cell[:, None] * SIZE + d[None, :], mask=cells, other=0.0)
    parts = tl.where(share[:, None] > 0, parts, 0.0)  # an empty split wrote no values
    total = tl.sum(share, 0)
    joined = tl.sum(parts * share[:, None], 0) / tl.where(total > 0, total, 1.0)
    place = begin.to(tl.int64) * OUT_STRIDE + head * OUT_HEAD_STRIDE
    if count == 1:
        tl.store(out + place + d, joined.to(out.dtype.element_ty), mask=d < SIZE)
