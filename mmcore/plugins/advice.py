"""What to tell someone whose adapter was not found: what to install, and what is likely wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from importlib.resources import files

from mmcore.manifest import AdapterInfo
from mmcore.plugins.discovery import DISABLE_VARIABLE
from mmcore.plugins.installed import normalized
from mmcore.plugins.records import Inventory


def describe(info: AdapterInfo, inventory: Inventory) -> str:
    origin = inventory.origin_of(info)
    return f"adapter '{info.name}'" + (f" of {origin}" if origin else "")


def unknown_architecture(architectures: Sequence[str], inventory: Inventory) -> str:
    names = ", ".join(f"'{name}'" for name in architectures)
    package = package_for(architectures)
    causes = tuple(_likely_causes(package, inventory))
    return " ".join(
        (f"no installed adapter serves the architecture {names}.", *causes, _install(package, causes))
    )


def unknown_adapter(name: str, inventory: Inventory, wanted_by: str | None) -> str:
    known = ", ".join(sorted({f"'{info.name}'" for info in inventory.adapters})) or "none"
    base = f", which adapter '{wanted_by}' extends" if wanted_by else ""
    causes = tuple(_likely_causes(None, inventory))
    return " ".join((f"no installed adapter is called '{name}'{base}; there are: {known}.", *causes))


def ambiguous(what: str, fitting: Sequence[AdapterInfo], inventory: Inventory) -> str:
    who = " and ".join(describe(info, inventory) for info in fitting)
    names = sorted({info.name for info in fitting})
    origins = [origin for origin in map(inventory.origin_of, fitting) if origin]
    disable = " or ".join(f"{DISABLE_VARIABLE}={origin.distribution}" for origin in origins)
    by_name = " or ".join(f"LLM(..., adapter='{name}')" for name in names)
    ways = [f"choose one by name, {by_name}"] if len(names) == len(fitting) else []
    return f"{what} is claimed by {who}; {', or '.join([*ways, f'disable one, {disable}'])}"


def package_for(architectures: Sequence[str]) -> str | None:
    """The published plugin that serves one of them; from data, since the code knows no family."""
    text = files("mmcore").joinpath("plugin_index.json").read_text(encoding="utf-8")
    index: dict[str, str] = json.loads(text)["architectures"]
    return next((index[name] for name in architectures if name in index), None)


def _likely_causes(package: str | None, inventory: Inventory) -> Iterator[str]:
    """Broken or disabled plugins; only the one in question where that is known and among them."""
    failures = [f for f in inventory.failures if package and _same(f.origin.distribution, package)]
    disabled = [o for o in inventory.disabled if package and _same(o.distribution, package)]
    if not failures and not disabled:
        failures, disabled = list(inventory.failures), list(inventory.disabled)
    for failure in failures:
        yield f"The likely cause: {failure}"
    for origin in disabled:
        yield f"The likely cause: {origin} is switched off by {DISABLE_VARIABLE}."


def _same(one: str, other: str) -> bool:
    return normalized(one) == normalized(other)


def _install(package: str | None, causes: Sequence[str]) -> str:
    if package and not any(package in cause for cause in causes):
        return f"Install its plugin: pip install {package}"
    return "" if package else "Install the plugin of its family (`mmcore plugins` lists what is installed)."
