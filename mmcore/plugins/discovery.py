"""Sort out which of the installed entry points to load. Nothing is imported here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmcore.plugins.installed import find_plugins, normalized
from mmcore.plugins.records import FoundPlugin, PluginFailure, PluginOrigin

GROUP = "mmcore"
DISABLE_VARIABLE = "MMCORE_DISABLE_PLUGINS"


@dataclass(frozen=True)
class Discovery:
    """The entry points, split by what shall become of them."""

    to_load: tuple[FoundPlugin, ...]
    duplicates: tuple[PluginFailure, ...]
    disabled: tuple[PluginOrigin, ...]
    unmatched: tuple[str, ...]


def discover(disable: str = "") -> Discovery:
    """``disable``: entry-point or distribution names, separated by commas."""
    found = sorted(find_plugins(GROUP), key=lambda plugin: (plugin.origin.name, plugin.origin.distribution))
    names = {name.strip(): normalized(name) for name in disable.split(",") if name.strip()}
    blocked = frozenset(names.values())
    known = frozenset(name for plugin in found for name in _names(plugin.origin))
    first, duplicates = _split_duplicates([p for p in found if not _names(p.origin) & blocked])
    return Discovery(
        to_load=first,
        duplicates=duplicates,
        disabled=tuple(plugin.origin for plugin in found if _names(plugin.origin) & blocked),
        unmatched=tuple(name for name, plain in names.items() if plain not in known),
    )


def _names(origin: PluginOrigin) -> frozenset[str]:
    return frozenset({normalized(origin.name), normalized(origin.distribution)})


def _split_duplicates(
    found: Sequence[FoundPlugin],
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
