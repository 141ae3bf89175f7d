"""A draw on a GPU is the draw on the host."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mmcore.model.sampler import SamplingBatch, sample

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (40, 0.9)])
def test_same_tokens_on_both_devices(top_k: int, top_p: float) -> None:
    """Equal but for near ties: the devices' logarithms differ in the last bit."""
    rows = 256
    logits = 3 * torch.randn(rows, 5000, generator=torch.Generator().manual_seed(0))
    columns: dict[str, Any] = {
        "temperature": [0.0, 0.7, 1.0, 1.3] * 64,
        "top_k": [top_k] * rows,
        "top_p": [top_p] * rows,
        "min_p": [0.0, 0.0, 0.0, 0.05] * 64,
        "seed": list(range(rows)),
        "position": list(range(rows)),
    }
    ids = [
        sample(logits.to(device, copy=True), SamplingBatch.of(device=torch.device(device), **columns)).cpu()
        for device in ("cpu", "cuda")
    ]
    assert int((ids[0] != ids[1]).sum()) <= 1
