"""`PluginRegistry`: what the rest of mmcore asks plugins through."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pluggy

from mmcore.errors import MediaFetchError, MMCoreError
from mmcore.manifest import AdapterInfo
from mmcore.plugins.records import Inventory, PluginFailure

if TYPE_CHECKING:
    from mmcore.adapter import Adapter, CheckpointFiles


class PluginRegistry:
    """The plugins of one engine or command. Made by `load_plugins()`, never changed after."""

    def __init__(self, manager: pluggy.PluginManager, inventory: Inventory) -> None:
        self._manager = manager
        self.inventory = inventory

    def resolve(self, config: Mapping[str, Any], name: str | None = None) -> AdapterInfo:
        """The adapter for a checkpoint's ``config.json``, or the one called ``name``.

        Raises `UnknownArchitectureError`, `UnknownAdapterError`, `AmbiguousAdapterError`,
        `PluginVersionError`; each says what to install or to choose.
        """
        from mmcore.plugins import choosing  # imported here: `mmcore --help` chooses nothing

        return choosing.resolve(self.inventory, config, name)

    def load_adapter(self, info: AdapterInfo, config: Mapping[str, Any], files: CheckpointFiles) -> Adapter:
        """Import the adapter's target, and its base's where it extends one, and build it.

        Raises `PluginLoadError` where the plugin's code fails, `CheckpointError` where it refuses the config.
        """
        from mmcore.plugins import choosing

        return choosing.load_adapter(self.inventory, info, config, files)

    def call_each(self, hook: str, **arguments: Any) -> tuple[PluginFailure, ...]:
        """Call a hook plugin by plugin (``mmcore_add_cli_commands``, ``mmcore_add_routes``)."""
        return tuple(self._call_each(hook, arguments))

    def observe(self, hook: str, **arguments: Any) -> None:
        """Tell the observers (``mmcore_step_finished``, ``mmcore_request_finished``).

        An observer never steers: what it raises is logged and forgotten.
        """
        if getattr(self._manager.hook, hook).get_hookimpls():
            for failure in self._call_each(hook, arguments):
                _log_observer(hook, failure)

    def fetch_media(self, url: str, policy: Any) -> bytes | None:
        """The bytes behind a URL whose scheme a plugin knows, None where none does.

        Raises `MediaFetchError` where the plugin fails, whatever it raises.
        """
        try:
            data = self._manager.hook.mmcore_fetch_media(url=url, policy=policy)
        except MMCoreError:
            raise
        except Exception as error:
            scheme = url.partition(":")[0]
            raise MediaFetchError(
                f"the plugin that fetches '{scheme}:' URLs failed ({type(error).__name__})"
            ) from error
        return None if data is None else bytes(data)

    def _call_each(self, hook: str, arguments: Mapping[str, Any]) -> Iterator[PluginFailure]:
        for loaded in self.inventory.plugins:
            try:
                call_own(self._manager, hook, loaded.plugin, arguments)
            except Exception as error:
                yield PluginFailure(
                    loaded.origin,
                    reason=f"{type(error).__name__}: {error}",
                    cure=f"Upgrade or uninstall {loaded.origin.distribution}.",
                )


def call_own(
    manager: pluggy.PluginManager, hook: str, plugin: Any, arguments: Mapping[str, Any]
) -> list[Any]:
    """What one plugin alone answers to a hook; pluggy's own call stops at the first that raises."""
    impls = getattr(manager.hook, hook).get_hookimpls()
    own = [impl for impl in impls if impl.plugin is plugin]
    return [impl.function(*(arguments[name] for name in impl.argnames)) for impl in own]


def _log_observer(hook: str, failure: PluginFailure) -> None:
    import logging

    logging.getLogger(__name__).warning("%s raised in %s: %s", failure.origin, hook, failure.reason)
