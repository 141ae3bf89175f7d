"""Find the entry points of the group ``mmcore``, and sort out which of them to load."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, distributions

from mmcore.plugins.records import PluginFailure, PluginOrigin

GROUP = "mmcore"
DISABLE_VARIABLE = "MMCORE_DISABLE_PLUGINS"


@dataclass(frozen=True, slots=True)
class FoundPlugin:
    """An entry point whose module is not imported yet."""

    origin: PluginOrigin
    entry_point: EntryPoint


@dataclass(frozen=True, slots=True)
class Discovery:
    """The entry points, split by what shall become of them."""

    to_load: tuple[FoundPlugin, ...]
    duplicates: tuple[PluginFailure, ...]
    disabled: tuple[PluginOrigin, ...]
    unmatched: tuple[str, ...]


def discover(disable: str = "") -> Discovery:
    """``disable``: entry-point or distribution names, separated by commas. Nothing is imported."""
    found = sorted(_find(), key=lambda plugin: (plugin.origin.name, plugin.origin.distribution))
    names = {name.strip(): normalized(name) for name in disable.split(",") if name.strip()}
    blocked = frozenset(names.values())
    enabled = [plugin for plugin in found if not _names(plugin.origin) & blocked]
    known = frozenset(name for plugin in found for name in _names(plugin.origin))
    first, duplicates = _split_duplicates(enabled)
    return Discovery(
        to_load=first,
        duplicates=duplicates,
        disabled=tuple(plugin.origin for plugin in found if _names(plugin.origin) & blocked),
        unmatched=tuple(name for name, plain in names.items() if plain not in known),
    )


def normalized(name: str) -> str:
    """A distribution's name as package indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def _names(origin: PluginOrigin) -> frozenset[str]:
    return frozenset({normalized(origin.name), normalized(origin.distribution)})


def _find() -> Iterator[FoundPlugin]:
    seen: set[str] = set()
    for distribution in distributions():
        points = _points(distribution)
        name, version = _identity(distribution) if points else ("", "")
        if not points or normalized(name) in seen:
            continue  # no plugin, or shadowed by the same distribution earlier on sys.path
        seen.add(normalized(name))
        for point in points:
            yield FoundPlugin(PluginOrigin(point.name, name, version), point)


def _points(distribution: Distribution) -> tuple[EntryPoint, ...]:
    """The distribution's ``mmcore`` entry points; a file that Python cannot read holds none."""
    try:
        return tuple(distribution.entry_points.select(group=GROUP))
    except Exception:
        return _points_of_broken_file(distribution)


def _points_of_broken_file(distribution: Distribution) -> tuple[EntryPoint, ...]:
    """One entry point that fails when loaded, so that a damaged plugin is told and no stranger is."""
    text = distribution.read_text("entry_points.txt") or ""
    if f"[{GROUP}]" not in text:
        return ()
    return (EntryPoint(name=_identity(distribution)[0], value="", group=GROUP),)


def _identity(distribution: Distribution) -> tuple[str, str]:
    try:
        name, version = distribution.metadata["Name"], distribution.metadata["Version"]
    except Exception:
        return "unknown", "unknown"
    return name or "unknown", version or "unknown"


def _split_duplicates(
    found: list[FoundPlugin],
) -> tuple[tuple[FoundPlugin, ...], tuple[PluginFailure, ...]]:
    first: dict[str, FoundPlugin] = {}
    failures: list[PluginFailure] = []
    for plugin in found:
        holder = first.setdefault(plugin.origin.name, plugin)
        if holder is not plugin:
            failures.append(_duplicate(plugin.origin, holder.origin))
    return tuple(first.values()), tuple(failures)


def _duplicate(origin: PluginOrigin, holder: PluginOrigin) -> PluginFailure:
    return PluginFailure(
        origin,
        reason=f"its name '{origin.name}' is already taken by {holder.distribution} {holder.version}",
        cure=(
            f"Uninstall one of the two, or set {DISABLE_VARIABLE}={holder.distribution} to load "
            f"this one and {DISABLE_VARIABLE}={origin.distribution} to load the other."
        ),
    )
