"""Weights that several threads read and copy in pieces arrive whole, converted, and where they belong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

from mmcore.errors import WeightError
from mmcore.model.weight_copy import WeightCopier
from mmcore.model.weight_file import StoredTensor, stored_tensors

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn]
shapes = st.lists(
    st.tuples(st.sampled_from([(1,), (7,), (3, 5), (64, 9), (33, 4, 2)]), st.sampled_from(DTYPES)),
    min_size=1,
    max_size=12,
)
Write = Callable[[Sequence[Tensor]], Path]


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory) -> Write:
    """Tensors as ``weights.safetensors``, named by their place."""

    def to_file(tensors: Sequence[Tensor]) -> Path:
        file = tmp_path_factory.mktemp("weights") / "weights.safetensors"
        save_file({f"{n:02}": tensor for n, tensor in enumerate(tensors)}, file)
        return file

    return to_file


def by_name(stored: StoredTensor) -> str:
    return stored.name


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=20)
@given(wanted=shapes, piece=st.sampled_from([8, 64, 4096]), seed=st.integers(0, 2**31))
def test_all_rows_arrive(
    device: str,
    write: Write,
    wanted: list[tuple[tuple[int, ...], torch.dtype]],
    piece: int,
    seed: int,
) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    random = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(shape, generator=random).to(dtype) for shape, dtype in wanted]
    targets = [torch.full((t.shape[0] + 2, *t.shape[1:]), torch.nan, device=device) for t in tensors]
    stored = sorted(stored_tensors(write(tensors)), key=by_name)
    with WeightCopier(torch.device(device), threads=3, piece_bytes=piece) as copier:
        for target, found in zip(targets, stored, strict=True):
            copier.copy(target[1:-1], found)
    for target, tensor in zip(targets, tensors, strict=True):
        assert torch.equal(target[1:-1].cpu(), tensor.float())
        assert target[[0, -1]].isnan().all()


def test_a_stored_tensor_is_read_from_any_byte_on(write: Write) -> None:
    tensors = [torch.randn(3, 5), torch.randn(7).bfloat16(), torch.randn(2, 2, 2).half()]
    stored = sorted(stored_tensors(write(tensors)), key=by_name)
    for found, tensor in zip(stored, tensors, strict=True):
        assert (found.shape, found.dtype) == (tuple(tensor.shape), tensor.dtype)
        buffer = bytearray(found.num_bytes - 4)
        found.read_into(memoryview(buffer), 4)
        assert bytes(buffer) == bytes(tensor.reshape(-1).view(torch.uint8).numpy())[4:]


def test_an_error_of_a_thread_is_raised(write: Write) -> None:
    """The file has become shorter since it was looked at."""
    (stored,) = stored_tensors(write([torch.zeros(64)]))
    late = replace(stored, start=stored.start + 8)
    with (
        pytest.raises(WeightError, match=r"weights\.safetensors ends in the middle of tensor '00'"),
        WeightCopier(torch.device("cpu"), threads=2) as copier,
    ):
        copier.copy(torch.empty(64), late)


def test_a_file_that_is_gone_is_named(write: Write) -> None:
    file = write([torch.zeros(4)])
    (stored,) = stored_tensors(file)
    file.unlink()
    with pytest.raises(WeightError, match=r"'00' cannot be read from .*weights\.safetensors: .*No such file"):
        stored.read_into(memoryview(bytearray(16)), 0)


@pytest.mark.parametrize("inference", [False, True])
def test_a_model_may_be_made_inside_inference_mode(write: Write, inference: bool) -> None:
    """Which is told to each thread anew."""
    (stored,) = stored_tensors(write([torch.arange(6.0)]))
    with torch.inference_mode(inference):
        rows = torch.empty(6)
        with WeightCopier(torch.device("cpu"), threads=2, piece_bytes=8) as copier:
            copier.copy(rows, stored)
        assert torch.equal(rows, torch.arange(6.0))
    assert rows.is_inference() is inference
