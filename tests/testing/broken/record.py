"""What a deliberately broken adapter is, and how parts of a real one are made worse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from mmcore.adapter import Adapter


@dataclass(frozen=True)
class Broken:
    """A fault, and the law that is the first to find it."""

    law: str
    worse: Callable[[Adapter], Adapter] = lambda adapter: adapter
    name: str = ""
    family: str = "pictures"
    target: str = ""
    """In place of `AdapterInfo.target`."""
    rewrite: Callable[[Path], None] | None = None
    """Changes the checkpoint's files first."""
    hidden: bool = False
    """No parity test finds it."""


def as_class(part: Any, kind: type, **changes: Any) -> Any:
    """``part`` as one of a subclass."""
    return kind(**{one.name: getattr(part, one.name) for one in fields(part) if one.init} | changes)


def worse_part(part: str, kind: type, **changes: Any) -> Callable[[Adapter], Adapter]:
    """The adapter with a part of this class."""

    def worse(adapter: Adapter) -> Adapter:
        return replace(adapter, **{part: as_class(getattr(adapter, part), kind, **changes)})

    worse.__name__ = kind.__name__
    return worse
