"""Load the plugins one by one; a broken one becomes a record and takes nothing else down."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar

import pluggy

from mmcore import hookspecs
from mmcore.errors import PluginLoadError
from mmcore.manifest import AdapterInfo, BackendInfo
from mmcore.plugins.discovery import DISABLE_VARIABLE, discover
from mmcore.plugins.records import FoundPlugin, Inventory, LoadedPlugin, PluginFailure, PluginOrigin
from mmcore.plugins.registry import PluginRegistry, call_own

STRICT_VARIABLE = "MMCORE_STRICT_PLUGINS"
_OFF = ("", "0", "false", "no", "off")

Info = TypeVar("Info", AdapterInfo, BackendInfo)


def load_plugins(environ: Mapping[str, str] | None = None) -> PluginRegistry:
    """A registry of everything installed, in entry-point order.

    ``MMCORE_DISABLE_PLUGINS=a,b`` leaves plugins unimported, by entry-point or distribution name.
    With ``MMCORE_STRICT_PLUGINS=1`` the first broken plugin raises `PluginLoadError`.
    """
    environ = os.environ if environ is None else environ
    found = discover(environ.get(DISABLE_VARIABLE, ""))
    loader = _Loader(strict=environ.get(STRICT_VARIABLE, "").strip().lower() not in _OFF)
    for duplicate in found.duplicates:
        loader.fail(duplicate)
    for plugin in found.to_load:
        loader.load(plugin)
    failures = tuple(sorted(loader.failures, key=lambda failure: failure.origin.name))
    inventory = Inventory(tuple(loader.plugins), failures, found.disabled, found.unmatched)
    return PluginRegistry(loader.manager, inventory)


class _Loader:
    """Owns the pluggy manager while it is filled."""

    def __init__(self, *, strict: bool) -> None:
        self.manager = pluggy.PluginManager("mmcore")
        self.manager.add_hookspecs(hookspecs)
        self.plugins: list[LoadedPlugin] = []
        self.failures: list[PluginFailure] = []
        self._strict = strict

    def load(self, found: FoundPlugin) -> None:
        try:
            self.plugins.append(self._register(found))
        except (Exception, SystemExit) as error:
            self.fail(_failure(found.origin, error), error)

    def fail(self, failure: PluginFailure, error: BaseException | None = None) -> None:
        if self._strict:
            raise PluginLoadError(f"{failure} ({STRICT_VARIABLE} is set)") from error
        self.failures.append(failure)

    def _register(self, found: FoundPlugin) -> LoadedPlugin:
        plugin = found.load()
        try:
            self.manager.register(plugin, name=found.origin.name)
            self.manager.check_pending()
            self._check_hooks(plugin)
            adapters = self._collect("mmcore_register_adapters", plugin, AdapterInfo)
            backends = self._collect("mmcore_register_attention_backends", plugin, BackendInfo)
        except BaseException:
            # pluggy 1.6 keeps a plugin whose hooks it refused, 1.7 does not
            if self.manager.get_plugin(found.origin.name) is not None:
                self.manager.unregister(name=found.origin.name)
            raise
        return LoadedPlugin(found.origin, plugin, adapters, backends)

    def _check_hooks(self, plugin: Any) -> None:
        """A function that is named like a hook and lacks the mark would be ignored without a word."""
        hooked = {caller.name for caller in self.manager.get_hookcallers(plugin) or ()}
        named = {
            name for name in dir(plugin) if name.startswith("mmcore_") and hasattr(self.manager.hook, name)
        }
        if named - hooked:
            raise PluginLoadError(f"{', '.join(sorted(named - hooked))} lacks the decorator @mmcore.hookimpl")
        if not hooked:
            raise PluginLoadError("it implements none of the hooks in mmcore.hookspecs")

    def _collect(self, hook: str, plugin: Any, kind: type[Info]) -> tuple[Info, ...]:
        """What this one plugin answers, so that nobody else is blamed for it."""
        infos = tuple(info for answer in call_own(self.manager, hook, plugin, {}) for info in answer)
        for info in infos:
            _check_info(hook, info, kind)
        return infos


def _check_info(hook: str, info: Any, kind: type[Info]) -> None:
    if not isinstance(info, kind):
        raise PluginLoadError(f"{hook} gave {info!r}, which is no {kind.__name__}")
    module, colon, name = info.target.partition(":")
    if not (module and colon and name):
        raise PluginLoadError(f"the target of '{info.name}' is {info.target!r}; it must be 'module:Class'")
    if isinstance(info, AdapterInfo) and isinstance(info.architectures, str):
        raise PluginLoadError(f"the architectures of '{info.name}' are one string; write a tuple of strings")


def _failure(origin: PluginOrigin, error: BaseException) -> PluginFailure:
    reason = str(error) if isinstance(error, PluginLoadError) else f"{type(error).__name__}: {error}"
    return PluginFailure(origin, " ".join(reason.split()), _cure(origin, error))


def _cure(origin: PluginOrigin, error: BaseException) -> str:
    others = (
        f"Upgrade or uninstall {origin.distribution}, or set {DISABLE_VARIABLE}={origin.name}; "
        f"{STRICT_VARIABLE}=1 shows the traceback."
    )
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"Install what brings the module '{error.name}', or reinstall {origin.distribution}. {others}"
    return others
