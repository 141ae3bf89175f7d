"""Bucketed relative position bias of a causal decoder (Raffel et al. 2020, arXiv 1910.10683)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mmcore.decoder_config import RelativeBias
from mmcore.errors import UnsupportedOptionError
from mmcore.model.layers import Embedding


def buckets_by_distance(config: RelativeBias) -> Tensor:
    """Bucket of each distance 0 to ``max_distance``, int64 [max_distance + 1]; farther is as the last.

    Half of the buckets hold one distance each, the others grow by a constant factor.
    """
    exact = config.buckets // 2
    distance = torch.arange(config.max_distance + 1, device="cpu")
    share = torch.log(distance.clamp(min=1).float() / exact) / math.log(config.max_distance / exact)
    far = (exact + (share * (config.buckets - exact)).long()).clamp(max=config.buckets - 1)
    return torch.where(distance < exact, distance, far)


class RelativeBiasTable(Embedding):
    """One table [buckets, heads] for all layers."""

    buckets: Tensor

    def __init__(self, config: RelativeBias, heads: int) -> None:
        super().__init__(config.buckets, heads)
        if config.bidirectional:
            raise UnsupportedOptionError("DecoderConfig.positions: a decoder's RelativeBias looks back only")
        buckets = buckets_by_distance(config).to(torch.get_default_device())
        self.register_buffer("buckets", buckets, persistent=False)

    def by_distance(self) -> Tensor:
        """float32 [heads, max_distance + 1]: what ``paged_attention`` takes as ``bias``."""
        return self(self.buckets).t().float().contiguous()  # type: ignore[no-any-return]
