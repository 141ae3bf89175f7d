"""``mmcore plugins``: what is installed, and what is broken, why, and what to do about it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from mmcore import __version__
from mmcore.manifest import API_VERSION, OLDEST_API_VERSION, AdapterInfo
from mmcore.plugins import Inventory, LoadedPlugin, PluginFailure, PluginOrigin

HEADER = ("PLUGIN", "VERSION", "ADAPTERS", "ARCHITECTURES", "STATUS")


def run_plugins(inventory: Inventory, arguments: argparse.Namespace) -> int:
    """Always 0: a broken plugin is what this command is there to tell."""
    if arguments.json:
        import json

        print(json.dumps(as_json(inventory), indent=2))
    else:
        print("\n".join(report(inventory)))
    return 0


def as_json(inventory: Inventory) -> dict[str, Any]:
    """The same facts as the table, for programs."""
    plugins = [
        *(_loaded_json(plugin) for plugin in inventory.plugins),
        *(_failure_json(failure) for failure in inventory.failures),
        *(asdict(origin) | {"status": "disabled"} for origin in inventory.disabled),
    ]
    return {
        "mmcore": __version__,
        "api_version": API_VERSION,
        "plugins": sorted(plugins, key=lambda plugin: (plugin["name"], plugin["distribution"])),
        "contested": dict(_contested(inventory)),
        "unmatched_disables": list(inventory.unmatched),
    }


def report(inventory: Inventory) -> Iterator[str]:
    """Lines: the table, then each broken plugin with reason and cure, then what else is worth a word."""
    rows = [row for plugin in inventory.plugins for row in _loaded_rows(plugin)]
    rows += [_bare_row(failure.origin, "broken") for failure in inventory.failures]
    rows += [_bare_row(origin, "disabled") for origin in inventory.disabled]
    if rows:
        yield from _table((HEADER, *rows))
    else:
        yield "No plugin is installed; each model family is one: pip install mmcore-plugin-FAMILY"
    for failure in inventory.failures:
        yield from (
            "",
            f"{failure.origin} did not load",
            f"  why: {failure.reason}",
            f"  cure: {failure.cure}",
        )
    for architecture, names in _contested(inventory):
        adapters = " and ".join(f"'{name}'" for name in names)
        yield f"\n{architecture} is served by {adapters}: choose by name, LLM(..., adapter=NAME)"
    if inventory.unmatched:
        yield f"\nMMCORE_DISABLE_PLUGINS names what is not installed: {', '.join(inventory.unmatched)}"


def _loaded_json(plugin: LoadedPlugin) -> dict[str, Any]:
    return asdict(plugin.origin) | {
        "status": _status(plugin.adapters),
        "adapters": [asdict(info) for info in plugin.adapters],
        "backends": [asdict(info) for info in plugin.backends],
    }


def _failure_json(failure: PluginFailure) -> dict[str, Any]:
    return asdict(failure.origin) | {"status": "broken", "reason": failure.reason, "cure": failure.cure}


def _status(adapters: Sequence[AdapterInfo]) -> str:
    if any(info.api_version > API_VERSION for info in adapters):
        return "needs a newer mmcore"
    if any(info.api_version < OLDEST_API_VERSION for info in adapters):
        return "too old"
    return "ok"


def _loaded_rows(plugin: LoadedPlugin) -> Iterator[tuple[str, ...]]:
    """One row an architecture; a name is written once."""
    first: tuple[str, ...] = (plugin.origin.name, plugin.origin.version)
    for info in plugin.adapters or (None,):
        name = info.name if info else "-"
        status = _status((info,) if info else ())
        for architecture in (info.architectures if info else ()) or (_no_architecture(info),):
            yield (*first, name, architecture, status)
            first, name, status = ("", ""), "", ""


def _no_architecture(info: AdapterInfo | None) -> str:
    return f"(extends {info.extends})" if info and info.extends else "-"


def _bare_row(origin: PluginOrigin, status: str) -> tuple[str, ...]:
    return (origin.name, origin.version, "-", "-", status)


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _contested(inventory: Inventory) -> Iterator[tuple[str, list[str]]]:
    """Architectures that several adapters serve, and the names of these."""
    own = [info for info in inventory.adapters if info.extends is None]
    for architecture in sorted({name for info in own for name in info.architectures}):
        names = [info.name for info in own if architecture in info.architectures]
        if len(names) > 1:
            yield architecture, names
