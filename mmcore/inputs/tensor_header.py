"""The header of a safetensors file: which tensors it holds, without reading any."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_LENGTH = 8
"""Bytes of the header's length, little-endian; the header is JSON, and the tensors follow."""
_LONGEST = 100_000_000
"""Bytes of a header that the format allows."""


def tensor_ends(file: Path) -> Mapping[str, int] | None:
    """By name, where each tensor ends in the file; None where there is no whole header."""
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(_LENGTH), "little")
            if length > _LONGEST:
                return None
            header: dict[str, Any] = json.loads(stream.read(length))
        return {
            name: _LENGTH + length + int(entry["data_offsets"][1])
            for name, entry in header.items()
            if name != "__metadata__"
        }
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None
