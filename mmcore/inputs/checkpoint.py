"""A checkpoint folder in the hub's layout: configuration, tokenizer, template, weight files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from mmcore.errors import CheckpointError
from mmcore.inputs.digest import checkpoint_digest
from mmcore.inputs.tokenizer import HFTokenizer

_INDEX = "model.safetensors.index.json"


class Checkpoint:
    """Implements `mmcore.adapter.CheckpointFiles` over a folder. Everything is read when asked for."""

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder)
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
        file = self.path / pure
        try:
            return file.read_text(encoding="utf-8") if file.is_file() else None
        except (OSError, UnicodeDecodeError):
            raise CheckpointError(f"{name} in {self.path} cannot be read as UTF-8 text") from None

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
        """Safetensors files in a fixed order. Raises `CheckpointError` where there are none or one lacks."""
        files = [self.path / name for name in self._shards()] or sorted(self.path.glob("*.safetensors"))
        if not files:
            raise CheckpointError(
                f"{self.path} has no *.safetensors weights; "
                "other formats (.bin, .pth) are pickles and are never loaded, convert them first"
            )
        for file in files:
            if not file.is_file():
                raise CheckpointError(f"{_INDEX} names {file.name}, which {self.path} does not have")
        return tuple(files)

    def _shards(self) -> list[str]:
        """Names in the index, which name files of this folder and nothing else."""
        shards = self.json(_INDEX).get("weight_map", {})
        names = sorted(set(shards.values())) if isinstance(shards, dict) else [""]
        if not all(isinstance(name, str) and re.fullmatch(r"[\w.-]+\.safetensors", name) for name in names):
            raise CheckpointError(f"{_INDEX} in {self.path} names something else than *.safetensors files")
        return names

    def digest(self) -> bytes:
        """32 bytes that tell this checkpoint from any other; part of every cache key."""
        return self._digest

    @cached_property
    def _digest(self) -> bytes:
        config = json.dumps(self.config, sort_keys=True).encode()
        return checkpoint_digest(self.path.absolute(), self.weight_files(), config)

    def _read_json(self, name: str) -> Mapping[str, Any]:
        source = self.text(name)
        if source is None:
            return {}
        try:
            value = json.loads(source)
        except ValueError as error:
            raise CheckpointError(f"{name} in {self.path} is not JSON: {error}") from None
        if not isinstance(value, dict):
            raise CheckpointError(f"{name} in {self.path} is not a JSON object")
        return value


def _default_template(value: Any) -> str | None:
    """A template, or the one called ``default`` of a list of named ones."""
    if isinstance(value, str):
        return value
    for entry in value if isinstance(value, list) else ():
        if isinstance(entry, dict) and entry.get("name") == "default":
            return str(entry.get("template"))
    return None
