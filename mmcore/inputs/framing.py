"""Values to bytes for hashing: each framed by a type tag and a length, so that no two look alike."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np
from blake3 import blake3

from mmcore.errors import PluginError

SCHEME = b"mmcore-key-1"
"""Part of every key; raised when what a key covers changes."""
_SMALL = 4096
"""Bytes; pieces under it are hashed together."""
_LARGE = 1 << 20
"""Bytes; from here on several threads hash sooner than one. They wait for each other: on a busy machine a
smaller piece takes several milliseconds instead of one tenth."""
_LENGTH = struct.Struct("<Q").pack
Pieces = list[bytes | memoryview]
Put = Callable[[Pieces, Any], None]


def hash_values(kind: str, *values: Any) -> bytes:
    """BLAKE3-256 over the scheme, what kind of key it is, and the framed values."""
    pieces: Pieces = [SCHEME]
    for value in (kind, *values):
        _put(pieces, value)
    largest = max(map(len, pieces))
    if largest < _SMALL:
        return blake3(b"".join(pieces)).digest()
    hasher, small = blake3(max_threads=blake3.AUTO if largest >= _LARGE else 1), bytearray()
    for piece in pieces:
        if len(piece) < _SMALL:
            small += piece
        else:
            hasher.update(bytes(small))
            hasher.update(piece)
            small.clear()
    hasher.update(bytes(small))
    return hasher.digest()


@dataclass(frozen=True, slots=True)
class Framed:
    """A value that goes into many keys, framed once."""

    data: bytes

    @classmethod
    def of(cls, value: Any) -> Framed:
        return cls(b"".join(frames(value)))


def frames(value: Any) -> Pieces:
    """Raises `PluginError` for what is not plain data: only adapters' fields can be anything."""
    pieces: Pieces = []
    _put(pieces, value)
    return pieces


def _put(pieces: Pieces, value: Any) -> None:
    _putter(type(value))(pieces, value)  # type: ignore[arg-type]


@lru_cache(maxsize=1024)
def _putter(kind: type) -> Put:
    """How values of a type are framed: keys are on every request's way, types are few."""
    for base, put in _PUTTERS:
        if issubclass(kind, base):
            return put
    return _record_putter(kind) if is_dataclass(kind) else _refuse


def _record_putter(kind: type) -> Put:
    """With its module: an extension's ``Encoder`` is not its base's ``Encoder``. Fields count that count in
    comparisons: the others (a tokenizer) decide nothing."""
    names = [field.name for field in fields(kind) if field.compare]
    head = b"".join((b"D" + _LENGTH(1 + len(names)), *frames(_name(kind))))
    starts = [(name, b"".join((b"t" + _LENGTH(2), *frames(name)))) for name in names]

    def put(pieces: Pieces, value: Any) -> None:
        pieces.append(head)
        for name, start in starts:
            pieces.append(start)
            _put(pieces, getattr(value, name))

    return put


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _frame(pieces: Pieces, tag: bytes, payload: bytes | memoryview) -> None:
    pieces.append(tag + _LENGTH(len(payload)))
    pieces.append(payload)


def _nest(pieces: Pieces, tag: bytes, values: Any) -> None:
    pieces.append(tag + _LENGTH(len(values)))
    for value in values:
        _put(pieces, value)


def _put_enum(pieces: Pieces, value: Any) -> None:
    _nest(pieces, b"E", (_name(type(value)), value.name))


def _put_set(pieces: Pieces, value: Any) -> None:
    _nest(pieces, b"S", sorted(Framed.of(entry).data for entry in value))


def _put_mapping(pieces: Pieces, value: Any) -> None:
    _nest(pieces, b"m", sorted((str(k), v) for k, v in value.items()))


def _put_array(pieces: Pieces, value: Any) -> None:
    _nest(pieces, b"a", (value.dtype.str, value.shape))
    _frame(pieces, b"d", np.ascontiguousarray(value).data.cast("B"))


def _refuse(pieces: Pieces, value: Any) -> None:
    raise PluginError(
        f"a {type(value).__name__} cannot be part of a cache key; "
        "fields of input processors and encoders are numbers, strings, tuples, mappings or dataclasses"
    )


_PUTTERS: tuple[tuple[Any, Put], ...] = (
    (bytes, lambda pieces, value: _frame(pieces, b"b", value)),
    (Framed, lambda pieces, value: pieces.append(value.data)),
    (Enum, _put_enum),  # before str and int, which an Enum may be as well
    (str, lambda pieces, value: _frame(pieces, b"s", value.encode("utf-8", "surrogatepass"))),
    ((type(None), bool), lambda pieces, value: _frame(pieces, b"c", repr(value).encode())),
    ((int, np.integer), lambda pieces, value: _frame(pieces, b"i", str(int(value)).encode())),
    ((float, np.floating), lambda pieces, value: _frame(pieces, b"f", struct.pack("<d", value))),
    ((tuple, list), lambda pieces, value: _nest(pieces, b"t", value)),
    ((frozenset, set), _put_set),
    (Mapping, _put_mapping),
    (np.ndarray, _put_array),
)
"""In this order."""
