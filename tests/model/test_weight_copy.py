"""Weights that several threads copy in pieces arrive whole, converted, and where they belong."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcore.model.weight_copy import WeightCopier

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
shapes = st.lists(st.sampled_from([(1,), (7,), (3, 5), (64, 9), (33, 4, 2)]), min_size=1, max_size=12)


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=20)
@given(shapes=shapes, piece=st.sampled_from([8, 64, 4096]), seed=st.integers(0, 2**31))
def test_all_rows_arrive(device: str, shapes: list[tuple[int, ...]], piece: int, seed: int) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    random = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(shape, generator=random).to(torch.bfloat16) for shape in shapes]
    targets = [torch.full((t.shape[0] + 2, *t.shape[1:]), torch.nan, device=device) for t in tensors]
    with WeightCopier(torch.device(device), threads=3, piece_bytes=piece) as copier:
        for target, tensor in zip(targets, tensors, strict=True):
            copier.copy(target[1:-1], tensor)
    for target, tensor in zip(targets, tensors, strict=True):
        assert torch.equal(target[1:-1].cpu(), tensor.float())
        assert target[[0, -1]].isnan().all()


def test_an_error_of_a_thread_is_raised() -> None:
    with pytest.raises(RuntimeError), WeightCopier(torch.device("cpu"), threads=2) as copier:
        copier.copy(torch.empty(3), torch.empty(4))
