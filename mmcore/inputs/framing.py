"""Values to bytes for hashing: each framed by a type tag and a length, so that no two look alike."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np
from blake3 import blake3

from mmcore.errors import PluginError

SCHEME = b"mmcore-key-1"
"""Part of every key; raised when what a key covers changes."""
_SMALL = 4096
"""Bytes; pieces under it are hashed together."""


def hash_values(kind: str, *values: Any) -> bytes:
    """BLAKE3-256 over the scheme, what kind of key it is, and the framed values."""
    hasher, small = blake3(SCHEME), bytearray()
    for value in (kind, *values):
        for piece in frames(value):
            if len(piece) < _SMALL:
                small += piece
            else:
                hasher.update(bytes(small))
                hasher.update(piece)
                small.clear()
    hasher.update(bytes(small))
    return bytes(hasher.digest())


@dataclass(frozen=True, slots=True)
class Framed:
    """A value that goes into many keys, framed once."""

    data: bytes

    @classmethod
    def of(cls, value: Any) -> Framed:
        return cls(b"".join(frames(value)))


def frames(value: Any) -> Iterator[bytes | memoryview]:
    """Raises `PluginError` for what is not plain data: only adapters' fields can be anything."""
    if isinstance(value, bytes):
        yield from _frame(b"b", value)
    elif isinstance(value, Framed):
        yield value.data
    elif isinstance(value, Enum):  # before str and int, which an Enum may be as well
        yield from _nested(b"E", (_kind(value), value.name))
    elif isinstance(value, str):
        yield from _frame(b"s", value.encode("utf-8", "surrogatepass"))
    elif value is None or isinstance(value, bool):
        yield from _frame(b"c", repr(value).encode())
    elif isinstance(value, int | np.integer):
        yield from _frame(b"i", str(int(value)).encode())
    elif isinstance(value, float | np.floating):
        yield from _frame(b"f", struct.pack("<d", value))
    elif isinstance(value, tuple | list):
        yield from _nested(b"t", value)
    elif isinstance(value, frozenset | set):
        yield from _nested(b"S", sorted(b"".join(frames(entry)) for entry in value))
    elif isinstance(value, Mapping):
        yield from _nested(b"m", sorted((str(k), v) for k, v in value.items()), keyed=True)
    elif isinstance(value, np.ndarray):
        yield from _nested(b"a", (value.dtype.str, value.shape))
        yield from _frame(b"d", np.ascontiguousarray(value).data.cast("B"))
    elif is_dataclass(value) and not isinstance(value, type):
        yield from _nested(b"D", (_kind(value), *_fields(value)))
    else:
        raise PluginError(
            f"a {type(value).__name__} cannot be part of a cache key; "
            "fields of input processors and encoders are numbers, strings, tuples, mappings or dataclasses"
        )


def _kind(value: Any) -> str:
    """With its module: an extension's ``Encoder`` is not its base's ``Encoder``."""
    return f"{type(value).__module__}:{type(value).__qualname__}"


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    """Those that count in comparisons: the others (a tokenizer) decide nothing."""
    return ((field.name, getattr(value, field.name)) for field in fields(value) if field.compare)


def _frame(tag: bytes, payload: bytes | memoryview) -> Iterator[bytes | memoryview]:
    yield tag + struct.pack("<Q", len(payload))
    yield payload


def _nested(tag: bytes, values: Any, keyed: bool = False) -> Iterator[bytes | memoryview]:
    yield tag + struct.pack("<Q", len(values))
    for value in values:
        yield from frames(value)
