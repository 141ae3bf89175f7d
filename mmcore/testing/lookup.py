"""From an adapter's name to what the kit tries: its manifest line, and its family or one checkpoint of it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any

from mmcore.errors import ConfigError, MMCoreError, PluginLoadError
from mmcore.inputs.checkpoint import Checkpoint
from mmcore.manifest import AdapterInfo
from mmcore.plugins import PluginRegistry
from mmcore.plugins.records import FoundPlugin, PluginOrigin
from mmcore.testing.family import Case, Family
from mmcore.testing.law import Law
from mmcore.testing.laws import LAWS
from mmcore.testing.place import place_of
from mmcore.testing.subject import Subject


def find_family(
    registry: PluginRegistry, name: str, checkpoint: Path | None = None
) -> tuple[AdapterInfo, Family]:
    """With a ``checkpoint`` the family has that folder for its one case, and needs no tiny ones.

    Raises `PluginError` where no adapter has the name or its manifest names no family for the kit,
    `CheckpointError` where the folder holds no model.
    """
    info = registry.resolve({}, name)
    if not info.testing and checkpoint is None:
        raise PluginLoadError(
            f"the manifest of adapter {name!r} names no tiny checkpoints: give its AdapterInfo "
            'testing="module:FAMILY" (mmcore.testing.family.Family), or try one real checkpoint of it'
        )
    family = _family(info) if info.testing else Family(adapter=name, cases=(), published={})
    return info, family if checkpoint is None else _over(family, checkpoint)


def _family(info: AdapterInfo) -> Family:
    try:
        found: Any = FoundPlugin(PluginOrigin(info.name, "", ""), info.testing).load()
    except MMCoreError:
        raise
    except Exception as error:
        raise PluginLoadError(
            f"adapter {info.name!r} says testing={info.testing!r}, which cannot be imported: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not isinstance(found, Family):
        raise PluginLoadError(
            f"adapter {info.name!r} says testing={info.testing!r}: that is a {type(found).__name__}, "
            "not a mmcore.testing.family.Family"
        )
    if not found.cases:
        raise PluginLoadError(f"the family of adapter {info.name!r} ({info.testing}) has no case")
    return found


def _over(family: Family, checkpoint: Path) -> Family:
    """Raises `CheckpointError` for what is no checkpoint."""
    folder = checkpoint.resolve()
    Checkpoint(folder).config  # noqa: B018  (read here, for a word about it before any law)
    plain = family.cases[0] if family.cases else Case(name="", write=lambda _: folder)
    return replace(family, cases=(replace(plain, name=folder.name, write=lambda _: folder, tiny=False),))


def open_case(
    info: AdapterInfo, family: Family, case: Case, folder: Path, worker: Executor | None = None
) -> Subject:
    """Raises `PluginLoadError` where the case's own code fails, and what the adapter says of its files.

    Both name the line of the package that led there.
    """
    try:
        return Subject.open(info, family, case, folder, worker)
    except MMCoreError as error:
        if error.__cause__ is None or not place_of(error, info):
            raise
        raise type(error)(f"{error} ({place_of(error, info)})") from error
    except Exception as error:
        where = place_of(error, info) or "outside of its package"
        raise PluginLoadError(
            f"the checkpoint {case.name!r} of adapter {info.name!r} could not be written or opened: "
            f"{type(error).__name__}: {error} ({where})"
        ) from error


def find_laws(names: Iterable[str]) -> tuple[Law, ...]:
    """Those of these names, all without any, in their order. Raises `ConfigError` for a name of none."""
    wanted = [name.replace("-", "_") for name in names]
    known = [law.name for law in LAWS]
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
            raise ConfigError(f"there is no law {name!r}; did you mean {near!r}? docs/laws.md has them all")
    return tuple(law for law in LAWS if not wanted or law.name in wanted)
