"""Triton kernels of ``paged_attention``: ``attend`` for prefill chunks and decode rows, ``join`` for splits.

A program holds ``BLOCK_Q`` tokens of one row times the ``GROUP`` query heads of one KV head in the M
dimension of its products: a KV tile is read once for the whole group. Rows of a single token may be cut into
``splits`` stretches of their context, to fill the card when rows are few (flash decoding, Dao et al. 2023).
Softmax runs online in base 2 and float32 (Milakov and Gimelshein 2018, arXiv 1805.02867).

A cache of e4m3 is read in pairs of values, 16 bits: what the matrix unit's loads can transpose. Each product
is made in two, of the first and of the second values.
"""
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from mmcore.kernels.chain_triton import begin
from mmcore.kernels.float8_triton import first_of, second_of

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
def _load(x, offset, d, inside, SIZE: tl.constexpr, BLOCK_D: tl.constexpr, MASKED: tl.constexpr):
    """Values ``d`` of the tokens at ``offset``, [tokens, values]."""
    place = x + offset[:, None] + d[None, :]
    if MASKED:
        return tl.load(place, mask=inside[:, None] & (d < SIZE)[None, :], other=0)
    if SIZE == BLOCK_D:
        return tl.load(place)
    return tl.load(place, mask=(d < SIZE)[None, :], other=0)


@triton.jit
def _attend_range(
    acc, acc_second, peak, total, q, q_second, keys, values, table, bias, bias_width, position, limit,
    low, high, scale,
    BLOCK_STRIDE: tl.constexpr,
    SLOT_STRIDE: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    PAIRS: tl.constexpr,
    NARROW: tl.constexpr,
    MASKED: tl.constexpr,
):  # fmt: skip
    """Fold positions ``low`` to ``high`` into the running softmax; unmasked: whole tiles that all may see."""
    d = tl.arange(0, BLOCK_D)
    for start in range(low, high, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        inside = n < high
        place = n.to(tl.uint32)  # whose quotients are shifts
        if BLOCK_SIZE % BLOCK_N == 0:
            block = tl.load(table + start // BLOCK_SIZE)  # a tile lies in one block
        elif MASKED:
            block = tl.load(table + place // BLOCK_SIZE, mask=inside, other=0)
        else:
            block = tl.load(table + place // BLOCK_SIZE)
        if NARROW:
            offset = block.to(tl.uint32) * BLOCK_STRIDE + place % BLOCK_SIZE * SLOT_STRIDE
        else:
            offset = block.to(tl.int64) * BLOCK_STRIDE + place % BLOCK_SIZE * SLOT_STRIDE
        k = _load(keys, offset, d, inside, SIZE, BLOCK_D, MASKED)
        if PAIRS:
            scores = tl.dot(q, tl.trans(first_of(k)), input_precision="ieee")
            scores = tl.dot(q_second, tl.trans(second_of(k)), scores, input_precision="ieee")
        else:
            scores = tl.dot(q, tl.trans(k), input_precision="ieee")
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
        weights = weights.to(q.dtype)
        v = _load(values, offset, d, inside, SIZE, BLOCK_D, MASKED)
        acc = acc * fade[:, None]
        if PAIRS:
            acc = tl.dot(weights, first_of(v), acc, input_precision="ieee")
            acc_second = tl.dot(weights, second_of(v), acc_second * fade[:, None], input_precision="ieee")
        else:
            acc = tl.dot(weights, v, acc, input_precision="ieee")
        peak = new_peak
    return acc, acc_second, peak, total


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
    PAIRS: tl.constexpr,
    NARROW: tl.constexpr,
    ONE_TILE: tl.constexpr,
    SPLIT: tl.constexpr,
    CHAINED: tl.constexpr,
):
    begin(CHAINED)
    BLOCK_Q: tl.constexpr = BLOCK_M // GROUP
    row = tl.program_id(0)
    first = 0
    if not ONE_TILE:
        tile = tl.num_programs(0) - 1 - tl.program_id(0)  # the longest stretches of a causal row come first
        row = _find_row(query_starts, tile, rows, BLOCK_Q)
    start = tl.load(query_starts + row)
    count = tl.load(query_starts + row + 1) - start
    if not ONE_TILE:
        first = (tile - start // BLOCK_Q - row) * BLOCK_Q
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
    index = (start + token).to(tl.int64)
    STEP: tl.constexpr = 2 if PAIRS else 1  # values of an element of the cache
    column = d[None, :] * STEP
    place = query + (index * QUERY_STRIDE + head * QUERY_HEAD_STRIDE)[:, None] + column
    q = tl.load(place, mask=cells, other=0.0)
    q_second = q
    if PAIRS:
        q_second = tl.load(place + 1, mask=cells, other=0.0).to(tl.float16)
        q = q.to(tl.float16)
        scale *= tl.load(kv_scales + tl.program_id(1))
    position = context - count + token
    limit = tl.zeros([BLOCK_M], tl.int32) + context
    seen_by_all = high
    if CAUSAL:
        limit = position + 1
        seen_by_all = tl.minimum(high, context - count + first + 1)
    middle = low + tl.maximum(seen_by_all - low, 0) // BLOCK_N * BLOCK_N

    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    acc_second = acc
    peak = tl.full([BLOCK_M], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    keys = key_cache + tl.program_id(1) * HEAD_STRIDE
    values = value_cache + tl.program_id(1) * HEAD_STRIDE
    table = block_tables + row.to(tl.int64) * table_stride
    bias += tl.where(wanted, head, 0) * bias_width
    acc, acc_second, peak, total = _attend_range(
        acc, acc_second, peak, total, q, q_second, keys, values, table, bias, bias_width, position, limit,
        low, middle, scale, BLOCK_STRIDE, SLOT_STRIDE,
        SIZE, BLOCK_SIZE, BLOCK_N, BLOCK_D, HAS_BIAS, PAIRS, NARROW, False,
    )  # fmt: skip
    acc, acc_second, peak, total = _attend_range(
        acc, acc_second, peak, total, q, q_second, keys, values, table, bias, bias_width, position, limit,
        middle, high, scale, BLOCK_STRIDE, SLOT_STRIDE,
        SIZE, BLOCK_SIZE, BLOCK_N, BLOCK_D, HAS_BIAS, PAIRS, NARROW, True,
    )  # fmt: skip
    total = tl.where(total > 0, total, 1.0)  # a row without context gives zeros
    share = 1.0 / total
    if PAIRS:
        share *= tl.load(kv_scales + tl.num_programs(1) + tl.program_id(1))
    acc *= share[:, None]
    if SPLIT:
        tl.store(partial_peak + cell, peak + tl.log2(total), mask=alone)
        place = partial + cell[:, None] * (SIZE * STEP) + column
        tl.store(place, acc, mask=cells & alone[:, None])
        if PAIRS:
            tl.store(place + 1, acc_second * share[:, None], mask=cells & alone[:, None])
        cells = cells & ~alone[:, None]
    place = out + (index * OUT_STRIDE + head * OUT_HEAD_STRIDE)[:, None] + column
    tl.store(place, acc.to(out.dtype.element_ty), mask=cells)
    if PAIRS:
        tl.store(place + 1, (acc_second * share[:, None]).to(out.dtype.element_ty), mask=cells)


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
    begin(CHAINED)
    start = tl.load(query_starts + row)
    count = tl.load(query_starts + row + 1) - start
    s = tl.arange(0, BLOCK_S)
    d = tl.arange(0, BLOCK_D)
    cell = (row.to(tl.int64) * splits + s) * tl.num_programs(1) + head
    share = tl.load(partial_peak + cell, mask=s < splits, other=-float("inf"))
    share = tl.where(count == 1, share, -float("inf"))  # other rows have no splits
    peak = tl.max(share, 0)
    share = tl.exp2(share - tl.where(peak == -float("inf"), 0.0, peak))
    cells = (s < splits)[:, None] & (d < SIZE)[None, :]
    parts = tl.load(partial + cell[:, None] * SIZE + d[None, :], mask=cells, other=0.0)
    parts = tl.where(share[:, None] > 0, parts, 0.0)  # an empty split wrote no values
    total = tl.sum(share, 0)
    joined = tl.sum(parts * share[:, None], 0) / tl.where(total > 0, total, 1.0)
    place = start.to(tl.int64) * OUT_STRIDE + head * OUT_HEAD_STRIDE
    if count == 1:
        tl.store(out + place + d, joined.to(out.dtype.element_ty), mask=d < SIZE)
