"""The two copies of a step: its columns to the device, what it gave to the host. Neither waits."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Columns = Mapping[str, NDArray[Any]]
ALIGNMENT = 16
"""Bytes; kernels read columns of any dtype where they lie."""


class ColumnLayout:
    """Where each column lies in one buffer of bytes."""

    def __init__(self, columns: Columns) -> None:
        self._places: dict[str, tuple[int, int, np.dtype[Any], tuple[int, ...]]] = {}
        end = 0
        for name, column in columns.items():
            start = -(-end // ALIGNMENT) * ALIGNMENT
            end = start + column.nbytes
            self._places[name] = (start, end, column.dtype, column.shape)
        self.num_bytes = end

    def start_of(self, name: str) -> int:
        return self._places[name][0]

    def arrays(self, buffer: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
        """The columns of a host buffer, the same memory."""
        return {
            name: buffer[start:end].view(dtype).reshape(shape)
            for name, (start, end, dtype, shape) in self._places.items()
        }

    def read(self, buffer: Tensor) -> dict[str, Tensor]:
        """The columns of a device buffer, the same memory."""
        columns = {}
        for name, (start, end, dtype, shape) in self._places.items():
            kind = _torch_dtype(dtype)
            if start == end:  # torch gives no view of nothing
                columns[name] = buffer.new_empty(shape, dtype=kind)
            else:
                columns[name] = buffer[start:end].view(kind).view(shape)
        return columns


def send(columns: Columns, device: torch.device) -> dict[str, Tensor]:
    """Columns of one step on the device: one copy from pinned memory, in the order of the stream."""
    if device.type == "cpu":
        return {name: torch.from_numpy(np.ascontiguousarray(column)) for name, column in columns.items()}
    layout = ColumnLayout(columns)
    host = host_buffer(layout.num_bytes, device)
    for name, array in layout.arrays(host.numpy()).items():
        array[...] = columns[name]
    return layout.read(host.to(device, non_blocking=True))


def host_buffer(num_bytes: int, device: torch.device) -> Tensor:
    """Host memory to copy to ``device`` from. Torch gives pinned memory out again only once the copies from
    it are done, so nobody has to keep it."""
    return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=device.type == "cuda")


def _torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype


@lru_cache
def _numpy_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    return torch.empty(0, dtype=dtype).numpy().dtype


def _bytes(tensor: Tensor) -> Tensor:
    """The tensor's memory, flat. One value may claim any stride, of which torch gives no view."""
    flat = tensor.reshape(-1)
    if flat.stride(0) != 1:
        flat = flat.clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8) if len(flat) else flat.new_empty(0, dtype=torch.uint8)


class HostCopy:
    """Tensors of one step on their way to the host, in one copy."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._shapes = {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
        parts = [_bytes(tensor) for tensor in tensors.values()]
        packed = torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8)
        self._bytes = packed.to("cpu", non_blocking=True)  # pinned, as torch makes it for such a copy
        self._done: torch.cuda.Event | None = None
        if packed.is_cuda:
            self._done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._done.record()

    def wait(self) -> dict[str, NDArray[Any]]:
        """The arrays, once the device has come so far."""
        if self._done is not None:
            self._done.synchronize()
        arrays, start, memory = {}, 0, self._bytes.numpy()
        for name, (dtype, shape) in self._shapes.items():
            end = start + shape.numel() * dtype.itemsize
            arrays[name] = memory[start:end].copy().view(_numpy_dtype(dtype)).reshape(shape)
            start = end
        return arrays
