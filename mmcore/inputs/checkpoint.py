"""A checkpoint folder in the hub's layout: configuration, tokenizer, template, weight files.

Some checkpoints are a folder of models: each sub-folder holds the weights, and one of them the tokenizer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from mmcore.errors import CheckpointError
from mmcore.inputs.digest import checkpoint_digest
from mmcore.inputs.tensor_header import tensor_ends
from mmcore.inputs.tokenizer import HFTokenizer

_INDEX = "model.safetensors.index.json"
_TEXT_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.json",
    "chat_template.jinja",
)
"""What lies beside the tokenizer, wherever that is."""


class Checkpoint:
    """Implements `mmcore.adapter.CheckpointFiles` over a folder. Everything is read when asked for.

    ``has_weights`` False: nobody will read them, so the folder need not have any.
    """

    def __init__(self, folder: str | Path, *, has_weights: bool = True) -> None:
        self.path = Path(folder)
        self._has_weights = has_weights
        if not self.path.is_dir():
            raise CheckpointError(f"{folder} is not a folder with a model")
        self._json: dict[str, Mapping[str, Any]] = {}

    @property
    def config(self) -> Mapping[str, Any]:
        config = self.json("config.json")
        if not config:
            raise CheckpointError(f"{self.path} has no config.json; is it a model in the hub's layout?")
        return config

    def json(self, name: str) -> Mapping[str, Any]:
        if name not in self._json:
            self._json[name] = self._read_json(name)
        return self._json[name]

    def text(self, name: str) -> str | None:
        pure = PurePosixPath(name)
        if pure.is_absolute() or ".." in pure.parts:
            raise CheckpointError(f"{name!r} does not lie inside the checkpoint")
        file = (self._text_folder if name in _TEXT_FILES else self.path) / pure
        try:
            return file.read_text(encoding="utf-8") if file.is_file() else None
        except (OSError, UnicodeDecodeError):
            raise CheckpointError(f"{name} in {self.path} cannot be read as UTF-8 text") from None

    @cached_property
    def _text_folder(self) -> Path:
        """The folder itself, unless only one of its sub-folders has a tokenizer."""
        if any((self.path / name).is_file() for name in _TEXT_FILES[:2]):
            return self.path
        found = {file.parent for name in _TEXT_FILES[:2] for file in self.path.glob(f"*/{name}")}
        return found.pop() if len(found) == 1 else self.path

    @cached_property
    def tokenizer(self) -> HFTokenizer:
        source = self.text("tokenizer.json")
        if source is not None:
            return HFTokenizer(source)
        raise CheckpointError(
            f"{self.path} has no tokenizer.json; write one with transformers: "
            "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
        )

    @property
    def chat_template(self) -> str | None:
        source = self.text("chat_template.jinja")
        if source is not None:
            return source
        for name in ("chat_template.json", "processor_config.json", "tokenizer_config.json"):
            template = _default_template(self.json(name).get("chat_template"))
            if template is not None:
                return template
        return None

    def weight_files(self) -> tuple[Path, ...]:
        """Safetensors files in a fixed order: those of the folder, or, where it has none, of its sub-folders.

        Raises `CheckpointError` where there are none or one lacks.
        """
        if not self._has_weights:
            return ()
        files = _weights_of(self.path)
        if not files:
            parts = sorted(part for part in self.path.iterdir() if part.is_dir())
            files = [file for part in parts for file in _weights_of(part)]
        if not files:
            raise CheckpointError(
                f"{self.path} has no *.safetensors weights; "
                "other formats (.bin, .pth) are pickles and are never loaded, convert them first"
            )
        return tuple(files)

    @cached_property
    def tensor_names(self) -> frozenset[str]:
        """Names as loading knows them: where files lie in sub-folders, each begins with its folder's."""
        try:
            files = self.weight_files()
        except CheckpointError:
            return frozenset()
        folders = [file.parent.relative_to(self.path).parts for file in files]
        return frozenset(
            "".join(f"{part}." for part in folder) + name
            for file, folder in zip(files, folders, strict=True)
            for name in tensor_ends(file) or ()
        )

    def digest(self) -> bytes:
        """32 bytes that tell this checkpoint from any other; part of every cache key."""
        return self._digest

    @cached_property
    def _digest(self) -> bytes:
        files = self.weight_files()
        parts = sorted({file.parent.name for file in files if file.parent != self.path})
        configs = [self.config, *(self.json(f"{part}/config.json") for part in parts)]
        return checkpoint_digest(self.path.absolute(), files, json.dumps(configs, sort_keys=True).encode())

    def _read_json(self, name: str) -> Mapping[str, Any]:
        source = self.text(name)
        return {} if source is None else _json_object(source, name, self.path)


def _json_object(source: str, name: str, folder: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(source)
    except ValueError as error:
        raise CheckpointError(f"{name} in {folder} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{name} in {folder} is not a JSON object")
    return value


def _weights_of(folder: Path) -> list[Path]:
    """Of one folder: what its index names, else all."""
    index = folder / _INDEX
    if not index.is_file():
        return sorted(folder.glob("*.safetensors"))
    files = [folder / name for name in _shards(index)]
    for file in files:
        if not file.is_file():
            raise CheckpointError(f"{_INDEX} names {file.name}, which {folder} does not have")
    return files


def _shards(index: Path) -> list[str]:
    """Names in the index, which name files of its folder and nothing else."""
    source = index.read_text(encoding="utf-8", errors="replace")
    shards = _json_object(source, _INDEX, index.parent).get("weight_map", {})
    names = sorted(set(shards.values())) if isinstance(shards, dict) else [""]
    if not all(isinstance(name, str) and re.fullmatch(r"[\w.-]+\.safetensors", name) for name in names):
        raise CheckpointError(f"{_INDEX} in {index.parent} names something else than *.safetensors files")
    return names


def _default_template(value: Any) -> str | None:
    """A template, or the one called ``default`` of a list of named ones."""
    if isinstance(value, str):
        return value
    for entry in value if isinstance(value, list) else ():
        if isinstance(entry, dict) and entry.get("name") == "default":
            return str(entry.get("template"))
    return None
