"""Whisper checkpoints in CTranslate2 format (as faster-whisper uses them), read and converted to hub layout.

Source of the format: CTranslate2's model writer, binary version 6: little-endian, strings with a 16 bit
length and a closing zero byte; a variable is name, rank, shape, data type, byte count, data; aliases follow.
"""

from __future__ import annotations

import json
import math
import mmap
import shutil
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from mmcore.errors import CheckpointError
from mmcore_whisper.hub_files import hub_files, is_multilingual

_VERSION = 6
_DTYPES: dict[int, np.dtype[Any]] = {
    0: np.dtype("<f4"),
    1: np.dtype("<i1"),
    2: np.dtype("<i2"),
    3: np.dtype("<i4"),
    4: np.dtype("<f2"),
}
_STACKED = {
    "self_attention": (("q_proj", "k_proj", "v_proj"), ("out_proj",)),
    "attention": (("q_proj",), ("k_proj", "v_proj"), ("out_proj",)),
}
"""Projections that each linear of an attention holds, stacked; ``attention`` alone is cross-attention."""


class Reader:
    """Walks a model file; running past its end is a `CheckpointError`."""

    def __init__(self, data: bytes | mmap.mmap, name: str) -> None:
        self._data = data
        self._name = name
        self._at = 0

    def number(self, code: str) -> int:
        return int(struct.unpack("<" + code, self.take(struct.calcsize(code)))[0])

    def string(self) -> str:
        return self.take(self.number("H"))[:-1].decode()

    def take(self, count: int) -> bytes:
        if self._at + count > len(self._data):
            raise CheckpointError(f"{self._name} ends in the middle of a variable; fetch it again, whole")
        self._at += count
        return self._data[self._at - count : self._at]

    @property
    def at_end(self) -> bool:
        return self._at == len(self._data)


def read_variables(path: Path) -> dict[str, np.ndarray]:
    """All variables of one ``model.bin`` by name. Raises `CheckpointError`."""
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            raise CheckpointError(f"{path.name} is empty; fetch it again")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return dict(_variables(Reader(data, path.name)))


def _variables(reader: Reader) -> Iterator[tuple[str, np.ndarray]]:
    version = reader.number("I")
    if version != _VERSION:
        raise CheckpointError(f"CTranslate2 binary version {version} is not supported, only {_VERSION}")
    specification = reader.string()
    if specification != "WhisperSpec":
        raise CheckpointError(f"this CTranslate2 model is a {specification}, not a WhisperSpec")
    reader.number("I")
    for _ in range(reader.number("I")):
        yield _variable(reader)


def _variable(reader: Reader) -> tuple[str, np.ndarray]:
    name = reader.string()
    shape = tuple(reader.number("I") for _ in range(reader.number("B")))
    code, size = reader.number("B"), reader.number("I")
    dtype = _DTYPES.get(code)
    if dtype is None or math.prod(shape) * dtype.itemsize != size:
        raise CheckpointError(f"{name}: data type {code} with {size} bytes does not fit shape {shape}")
    return name, np.frombuffer(reader.take(size), dtype).reshape(shape)


# ------------------------------------------------------------------ tensors


def hub_tensors(variables: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """CTranslate2 variables under the names and in the shapes of the hub's checkpoints."""
    tensors: dict[str, np.ndarray] = {}
    for name, value in variables.items():
        if value.ndim == 0:
            continue
        if value.dtype.kind != "f":
            raise CheckpointError(f"{name} is quantised ({value.dtype}); convert a float16 or float32 model")
        try:
            tensors.update(_hub_tensor(name, value))
        except (KeyError, IndexError, ValueError):
            raise CheckpointError(f"variable {name} {value.shape} is not one of a Whisper model") from None
    return tensors


def _hub_tensor(name: str, value: np.ndarray) -> dict[str, np.ndarray]:
    side, *path = name.split("/")
    match path:
        case ["embeddings", "weight"]:
            return {f"model.{side}.embed_tokens.weight": value}
        case ["position_encodings", "encodings"]:
            return {f"model.{side}.embed_positions.weight": value}
        case ["layer_norm", leaf]:
            return {f"model.{side}.layer_norm.{_norm_leaf(leaf)}": value}
        case [("conv1" | "conv2") as convolution, leaf]:
            return {f"model.{side}.{convolution}.{leaf}": value}
        case [layer, *inner] if layer.startswith("layer_"):
            start = f"model.{side}.layers.{layer.removeprefix('layer_')}"
            return {f"{start}.{key}": part for key, part in _layer_tensor(inner, value, name).items()}
    raise KeyError(name)


def _layer_tensor(path: list[str], value: np.ndarray, name: str) -> dict[str, np.ndarray]:
    match path:
        case ["ffn", "layer_norm", leaf]:
            return {f"final_layer_norm.{_norm_leaf(leaf)}": value}
        case ["ffn", linear, leaf]:
            return {f"fc{int(linear.removeprefix('linear_')) + 1}.{leaf}": value}
        case [("self_attention" | "attention") as kind, "layer_norm", leaf]:
            return {f"{_attention(kind)}_layer_norm.{_norm_leaf(leaf)}": value}
        case [("self_attention" | "attention") as kind, linear, leaf]:
            parts = _STACKED[kind][int(linear.removeprefix("linear_"))]
            pieces = zip(parts, np.split(value, len(parts)), strict=True)
            return {
                f"{_attention(kind)}.{part}.{leaf}": np.ascontiguousarray(piece)
                for part, piece in pieces
                if not _is_key_bias(part, leaf, piece, name)
            }
    raise KeyError(name)


def _is_key_bias(part: str, leaf: str, piece: np.ndarray, name: str) -> bool:
    """Whisper's keys have no bias; the fused variable holds zeros in its place."""
    if (part, leaf) != ("k_proj", "bias"):
        return False
    if np.any(piece):
        raise CheckpointError(f"variable {name} holds a bias for the keys, which Whisper does not have")
    return True


def _attention(kind: str) -> str:
    return "self_attn" if kind == "self_attention" else "encoder_attn"


def _norm_leaf(leaf: str) -> str:
    return {"gamma": "weight", "beta": "bias"}[leaf]


# ------------------------------------------------------------------ conversion


def convert(source: Path, target: Path) -> None:
    """Turn a CTranslate2 Whisper folder into one of hub layout, in the dtype it is stored in.

    ``source`` holds ``model.bin``, ``config.json`` and ``tokenizer.json``; ``target`` is made. Raises
    `CheckpointError` for another model, another format version, a quantised or a truncated file.
    """
    variables = read_variables(source / "model.bin")
    tensors = hub_tensors(variables)
    stored, tokenizer = (
        json.loads((source / f"{n}.json").read_text("utf-8")) for n in ("config", "tokenizer")
    )
    heads = {side: int(_variable_named(variables, f"{side}/num_heads")) for side in ("encoder", "decoder")}
    vocabulary = len(_variable_named(variables, "decoder/embeddings/weight"))
    files = hub_files(tensors, tokenizer, stored, heads=heads, multilingual=is_multilingual(vocabulary))
    target.mkdir(parents=True, exist_ok=True)
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    shutil.copyfile(source / "tokenizer.json", target / "tokenizer.json")
    for name, content in files.items():
        (target / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _variable_named(variables: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    if name not in variables:
        raise CheckpointError(f"model.bin has no variable {name}: it is not a Whisper model")
    return variables[name]
