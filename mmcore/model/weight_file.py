"""A safetensors file as places: what lies where, to be read piece by piece."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from mmcore.errors import WeightError

_PIECE = 8 << 20
"""Bytes that are compared at once."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a file: ``start`` is its first byte there."""

    name: str
    file: Path
    start: int
    num_bytes: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    def read_into(self, buffer: memoryview, offset: int) -> None:
        """Fill ``buffer`` from the tensor's byte ``offset`` on, past the page table: a page that is in memory
        is copied once, and threads do not wait for each other. Raises `WeightError` where the file ends or
        cannot be read."""
        try:
            with open(self.file, "rb", buffering=0) as source:
                while buffer:
                    count = os.preadv(source.fileno(), [buffer], self.start + offset)
                    if not count:
                        raise WeightError(f"{self.file.name} ends in the middle of tensor {self.name!r}")
                    buffer, offset = buffer[count:], offset + count
        except OSError as error:
            raise WeightError(f"tensor {self.name!r} cannot be read from {self.file}: {error}") from error


def same_values(one: StoredTensor, other: StoredTensor) -> bool:
    """Of one shape and byte for byte the same."""
    if (one.shape, one.num_bytes) != (other.shape, other.num_bytes):
        return False
    left, right = (memoryview(bytearray(min(one.num_bytes, _PIECE))) for _ in range(2))
    for start in range(0, one.num_bytes, _PIECE):
        size = min(_PIECE, one.num_bytes - start)
        one.read_into(left[:size], start)
        other.read_into(right[:size], start)
        if left[:size] != right[:size]:
            return False
    return True


def stored_tensors(file: Path) -> list[StoredTensor]:
    """The tensors of a file. Raises `WeightError` where it is no safetensors file."""
    try:
        with safe_open(file, framework="pt", device="cpu") as checked:
            return [_stored(name, file, entry, data, checked) for name, entry, data in _entries(file)]
    except SafetensorError as error:
        raise WeightError(f"{file.name} is not a readable safetensors file: {error}") from error


def _entries(file: Path) -> Iterator[tuple[str, dict[str, list[int]], int]]:
    """(name, header entry, where the data begin) of each tensor of a file that safetensors has checked."""
    with open(file, "rb") as source:
        length = int.from_bytes(source.read(8), "little")
        header = json.loads(source.read(length))
    yield from ((name, entry, 8 + length) for name, entry in header.items() if name != "__metadata__")


def _stored(
    name: str, file: Path, entry: dict[str, list[int]], data: int, checked: safe_open
) -> StoredTensor:
    begin, end = entry["data_offsets"]
    dtype = checked.get_tensor(name).dtype  # type: ignore[no-untyped-call]  # mapped, not read
    return StoredTensor(name, file, data + begin, end - begin, tuple(entry["shape"]), dtype)
