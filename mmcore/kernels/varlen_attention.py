"""Attention inside packed segments: encoder towers, where each picture or window sees only itself."""

from __future__ import annotations

from itertools import groupby, pairwise

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from mmcore.errors import EngineError


def varlen_attention_reference(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, scale: float) -> Tensor:
    """Segment by segment, softmax written out."""
    out = torch.empty_like(q)
    group = q.shape[1] // k.shape[1]
    bounds = starts.tolist()
    for begin, end in pairwise(bounds):
        keys, values = (x[begin:end].repeat_interleave(group, dim=1) for x in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q[begin:end], keys) * scale
        out[begin:end] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), values)
    return out


def varlen_attention(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, max_len: int, scale: float) -> Tensor:
    """Bidirectional attention inside segments of ``q`` [T, H, D], ``k``, ``v`` [T, Hk, D]; gives [T, H, D].

    Segment s is tokens ``starts[s]`` to ``starts[s + 1]``; ``starts`` [S + 1] int32 runs from 0 to T and may
    lie on the host (then no device sync is needed). ``max_len`` bounds a segment's length. Raises EngineError
    on shapes that don't fit.
    """
    if k.shape != v.shape or k.shape[0] != q.shape[0] or q.shape[1] % k.shape[1]:
        raise EngineError(
            f"varlen_attention: q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)} must be "
            "[tokens, heads, head size] with query heads a multiple of key heads"
        )
    if q.is_cuda and q.dtype != torch.float32:
        from torch.nn.attention.varlen import varlen_attn

        bounds = starts.to(q.device)
        if q.shape[1] != k.shape[1]:
            k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
        attended = varlen_attn(q, k, v, bounds, bounds, max_len, max_len, scale=scale)
        assert isinstance(attended, Tensor)
        return attended
    return _by_segment(q, k, v, starts.tolist(), scale)


def _by_segment(q: Tensor, k: Tensor, v: Tensor, bounds: list[int], scale: float) -> Tensor:
    """Neighbours of one length (windows, frames, equal pictures) go through one call."""
    out = torch.empty_like(q)
    gqa = q.shape[1] != k.shape[1]
    lens = [end - begin for begin, end in pairwise(bounds)]
    begin = bounds[0]
    for length, run in groupby(lens):
        count = len(list(run))
        end = begin + count * length
        if length:
            heads, keys, values = (
                x[begin:end].view(count, length, -1, q.shape[2]).transpose(1, 2) for x in (q, k, v)
            )
            attended = scaled_dot_product_attention(heads, keys, values, scale=scale, enable_gqa=gqa)
            out[begin:end] = attended.transpose(1, 2).flatten(0, 1)
        begin = end
    return out
