"""Attention inside packed segments: encoder towers, where each picture or window sees only itself."""

from __future__ import annotations

from itertools import groupby, pairwise

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from mmcore.errors import EngineError
from mmcore.kernels.dispatch import use_triton


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

    Segment s is tokens ``starts[s]`` to ``starts[s + 1]``; ``starts`` [S + 1] int32 runs from 0 to T.
    ``max_len`` bounds a segment's length. On a CUDA device (``starts`` too) nothing is read back, so the call
    can be captured in a graph of fixed T, S and ``max_len``. The library's attention, up to a fifth
    faster for many segments of one length, is not taken there: it makes a plan for each new number of them,
    and a step would have to wait for that. Raises EngineError on shapes that don't fit.
    """
    if k.shape != v.shape or k.shape[0] != q.shape[0] or q.shape[1] % k.shape[1]:
        raise EngineError(
            f"varlen_attention: q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)} must be "
            "[tokens, heads, head size] with query heads a multiple of key heads"
        )
    if not use_triton(q):
        return _by_segment(q, k, v, starts.tolist(), scale)
    from mmcore.kernels.varlen_attention_triton import varlen_attention_triton

    return varlen_attention_triton(q, k, v, starts.to(q.device), max_len, scale)


def _equal_segments(q: Tensor, k: Tensor, v: Tensor, segments: int, scale: float) -> Tensor:
    """``segments`` of one length as a batch."""
    heads, keys, values = (x.view(segments, -1, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))
    gqa = q.shape[1] != k.shape[1]
    attended = scaled_dot_product_attention(heads, keys, values, scale=scale, enable_gqa=gqa)
    return attended.transpose(1, 2).flatten(0, 1)


def _by_segment(q: Tensor, k: Tensor, v: Tensor, bounds: list[int], scale: float) -> Tensor:
    """Neighbours of one length (windows, frames, equal pictures) go through one call."""
    out = torch.empty_like(q)
    lens = [end - begin for begin, end in pairwise(bounds)]
    begin = bounds[0]
    for length, run in groupby(lens):
        count = len(list(run))
        end = begin + count * length
        if length:
            out[begin:end] = _equal_segments(q[begin:end], k[begin:end], v[begin:end], count, scale)
        begin = end
    return out
