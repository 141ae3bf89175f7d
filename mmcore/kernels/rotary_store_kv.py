"""``rotary`` and ``store_kv`` in one launch: what stands between the qkv product and attention."""

from __future__ import annotations

from torch import Tensor

from mmcore.errors import EngineError
from mmcore.kernels.dispatch import use_triton
from mmcore.kernels.rotary import rotary, rotary_reference
from mmcore.kernels.store_kv import check_store, store_kv, store_kv_reference


def rotary_store_kv_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cos: Tensor,
    sin: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    scales: Tensor | None = None,
) -> Tensor:
    """One after the other."""
    q, k = rotary_reference(q, k, cos, sin)
    store_kv_reference(k, v, key_cache, value_cache, slot_mapping, scales)
    return q


def rotary_store_kv(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cos: Tensor,
    sin: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    scales: Tensor | None = None,
) -> Tensor:
    """Turn ``q`` [T, Hq, D] and ``k`` [T, Hk, D], write the turned ``k`` and ``v`` into the caches; gives q.

    Arguments as those of ``rotary`` and ``store_kv``, and bit for bit their results. ``q``, ``k``, ``v`` may
    be parts of one fused product: only the values of a head must lie side by side. Safe to capture: q is a
    new tensor, everything that must persist between replays is the caller's. Raises EngineError on shapes
    that don't fit.
    """
    check_store(k, v, key_cache, value_cache, slot_mapping)
    if cos.shape != sin.shape or len(cos) != len(q) or 2 * cos.shape[1] > q.shape[2]:
        raise EngineError(
            f"rotary_store_kv: cosines {tuple(cos.shape)} and sines {tuple(sin.shape)} must be "
            f"[{len(q)} tokens, at most half of the head size {q.shape[2]}]"
        )
    if use_triton(q):
        from mmcore.kernels.rotary_store_kv_triton import rotary_store_kv_triton

        return rotary_store_kv_triton(q, k, v, cos, sin, key_cache, value_cache, slot_mapping, scales)
    q, k = rotary(q, k, cos, sin)
    store_kv(k, v, key_cache, value_cache, slot_mapping, scales)
    return q
