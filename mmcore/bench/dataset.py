"""Requests out of a file: JSON Lines, one request a line.

    {"prompt": "What is this?", "images": ["cat.jpg"], "output_tokens": 64}

``prompt`` is text; ``images``, ``audios`` and ``videos`` are lists of files (a relative path starts at the
file's folder) or URLs; ``output_tokens`` is the length of the answer, where it is not that of the command.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmcore.errors import ConfigError

if TYPE_CHECKING:
    from mmcore import LLM

MEDIA = {"images": "image", "audios": "audio", "videos": "video"}
"""Field of a line, and the modality of what it lists."""


@dataclass(frozen=True, slots=True)
class Line:
    """One request: its prompt's text, its media by modality, and the length of its answer."""

    prompt: str
    media: Mapping[str, Sequence[str]]
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Dataset:
    """The first lines of a file, in their order."""

    name: str
    lines: tuple[Line, ...]

    @property
    def requests(self) -> int:
        return len(self.lines)

    def answer_lengths(self) -> Sequence[int]:
        return [line.output_tokens for line in self.lines]

    def prompts(self, llm: LLM, seed: int, media_seed: int) -> list[Any]:
        """The same each time, under a salt of their own: nothing is found in a cache of an earlier run."""
        salt = f"bench-{media_seed}"
        return [
            {"prompt": line.prompt, "multi_modal_data": line.media, "cache_salt": salt} for line in self.lines
        ]


def read_dataset(file: Path, count: int | None, output_tokens: int) -> Dataset:
    """``count`` lines, or all. Raises `ConfigError` that names file and line."""
    try:
        rows = [row for row in file.read_text(encoding="utf-8").splitlines() if row.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--dataset {file} cannot be read: {error}") from None
    if len(rows) < max(1, count or 1):
        raise ConfigError(f"--dataset {file} has {len(rows)} requests, {count or 'at least 1'} are asked for")
    lines = [_line(row, f"{file}:{n}", file.parent, output_tokens) for n, row in enumerate(rows[:count], 1)]
    return Dataset(file.name, tuple(lines))


def _line(row: str, where: str, folder: Path, output_tokens: int) -> Line:
    try:
        fields = json.loads(row)
    except ValueError as error:
        raise ConfigError(f"{where} is not JSON: {error}") from None
    if not isinstance(fields, dict) or not isinstance(fields.get("prompt"), str):
        raise ConfigError(f'{where}: a line is {{"prompt": TEXT, ...}}')
    unknown = sorted(set(fields) - {"prompt", "output_tokens", *MEDIA})
    if unknown:
        raise ConfigError(f"{where}: unknown field {unknown[0]!r}; there are {', '.join(MEDIA)}")
    length = fields.get("output_tokens", output_tokens)
    if not isinstance(length, int) or length < 1:
        raise ConfigError(f"{where}: output_tokens is a number from 1 on, not {length!r}")
    listed = [field for field in MEDIA if field in fields]
    media = {MEDIA[field]: _files(fields[field], f"{where}: {field}", folder) for field in listed}
    return Line(fields["prompt"], media, length)


def _files(names: Any, where: str, folder: Path) -> Sequence[str]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{where} is a list of paths or URLs")
    return [name if ":" in name else str(folder / name) for name in names]
