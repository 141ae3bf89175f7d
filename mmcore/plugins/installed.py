"""The entry points of installed distributions.

`importlib.metadata` finds them everywhere, and importing it costs more CPU time (50 ms) than all the rest of
``mmcore --help``. Where `sys.path` holds plain folders only, this reads their dist-info files itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder

from mmcore.plugins.records import FoundPlugin, PluginOrigin

_INFO_FOLDERS = (".dist-info", ".egg-info")
_UNKNOWN = "unknown"


def find_plugins(group: str) -> Iterator[FoundPlugin]:
    """In `sys.path` order; of one distribution that is there twice, the first."""
    seen: set[str] = set()
    for points, metadata in _plain_files() if _only_plain_folders() else _any_files():
        if f"[{group}]" not in points:
            continue
        name, version = _header(metadata, "Name"), _header(metadata, "Version")
        if name == _UNKNOWN or normalized(name) not in seen:
            seen.add(normalized(name))
            for point, value in _section(points, group):
                yield FoundPlugin(PluginOrigin(point or name, name, version), value)


def normalized(name: str) -> str:
    """A distribution's name as package indexes compare it (PEP 503)."""
    return "-".join(
        part for part in name.strip().lower().replace("_", "-").replace(".", "-").split("-") if part
    )


def _only_plain_folders() -> bool:
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_distributions")]
    odd = [entry for entry in sys.path if entry.endswith(".egg") or os.path.isfile(entry)]
    return finders == [PathFinder] and not odd


def _plain_files() -> Iterator[tuple[str, str]]:
    """(entry_points.txt, METADATA) of each distribution that has entry points."""
    for entry in dict.fromkeys(sys.path):
        try:
            names = [name for name in os.listdir(entry or ".") if name.endswith(_INFO_FOLDERS)]
        except OSError:
            continue
        for name in names:
            folder = os.path.join(entry, name)
            points = _read(folder, "entry_points.txt")
            if points:
                yield points, _read(folder, "METADATA") or _read(folder, "PKG-INFO")


def _any_files() -> Iterator[tuple[str, str]]:
    """The same through importlib.metadata, which also looks into archives and asks other finders."""
    from importlib.metadata import distributions

    for distribution in distributions():
        points = distribution.read_text("entry_points.txt")
        if points:
            yield points, distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""


def _read(folder: str, name: str) -> str:
    try:
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _header(metadata: str, field: str) -> str:
    head = metadata.partition("\n\n")[0].splitlines()
    values = (line.partition(":")[2].strip() for line in head if line.lower().startswith(f"{field.lower()}:"))
    return next(values, "") or _UNKNOWN


def _section(text: str, group: str) -> Iterator[tuple[str, str]]:
    """(name, value) of one section; a line that says neither gives two empty strings."""
    inside = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            inside = line == f"[{group}]"
        elif inside and line and line[0] not in "#;":
            name, equals, value = line.partition("=")
            yield (name.strip(), value.partition("[")[0].strip()) if equals else ("", "")
