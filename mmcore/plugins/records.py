"""What loading found: plain frozen records, which `mmcore plugins` prints and `resolve()` reads."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from mmcore.errors import PluginLoadError
from mmcore.manifest import AdapterInfo, BackendInfo


@dataclass(frozen=True)
class PluginOrigin:
    """Where a plugin comes from: its entry point, and the distribution that pip installed."""

    name: str
    """Entry-point name."""
    distribution: str
    version: str

    def __str__(self) -> str:
        return f"plugin '{self.name}' ({self.distribution} {self.version})"


@dataclass(frozen=True)
class FoundPlugin:
    """An entry point whose module is not imported yet."""

    origin: PluginOrigin
    value: str
    """``"module"`` or ``"module:object"``; empty where entry_points.txt is damaged."""

    def load(self) -> Any:
        """Import the module and give what the entry point names. Raises whatever the module raises."""
        module, _, path = self.value.partition(":")
        if not module:
            raise PluginLoadError("its entry_points.txt cannot be read")
        found: Any = import_module(module.strip())
        for name in filter(None, path.strip().split(".")):
            found = getattr(found, name)
        return found


@dataclass(frozen=True)
class LoadedPlugin:
    """A plugin that loaded, with everything its manifest says."""

    origin: PluginOrigin
    plugin: Any
    """What its entry point names: a module, or an object with hooks."""
    adapters: tuple[AdapterInfo, ...] = ()
    backends: tuple[BackendInfo, ...] = ()


@dataclass(frozen=True)
class PluginFailure:
    """A plugin that is installed and does not work: why, and what to do."""

    origin: PluginOrigin
    reason: str
    cure: str

    def __str__(self) -> str:
        return f"{self.origin} did not load: {self.reason}. {self.cure}"


@dataclass(frozen=True)
class Inventory:
    """Everything that is installed. Each part is sorted by entry-point name."""

    plugins: tuple[LoadedPlugin, ...] = ()
    failures: tuple[PluginFailure, ...] = ()
    disabled: tuple[PluginOrigin, ...] = ()
    unmatched: tuple[str, ...] = ()
    """Names in ``MMCORE_DISABLE_PLUGINS`` that fit no installed plugin."""

    @property
    def adapters(self) -> tuple[AdapterInfo, ...]:
        return tuple(info for plugin in self.plugins for info in plugin.adapters)

    @property
    def backends(self) -> tuple[BackendInfo, ...]:
        return tuple(info for plugin in self.plugins for info in plugin.backends)

    def origin_of(self, info: AdapterInfo) -> PluginOrigin | None:
        """The plugin whose manifest holds this very record; None for one made by hand."""
        holders = (p.origin for p in self.plugins if any(own is info for own in p.adapters))
        return next(holders, None)
