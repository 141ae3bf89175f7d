"""Installed plugins: found by entry point, loaded one by one, asked for adapters.

    registry = load_plugins()
    info = registry.resolve(checkpoint_config)
    adapter = registry.load_adapter(info, checkpoint_config, files)

Nothing here is kept in a module: two registries never see each other.
"""

from mmcore.plugins.loading import load_plugins
from mmcore.plugins.records import Inventory, LoadedPlugin, PluginFailure, PluginOrigin
from mmcore.plugins.registry import PluginRegistry

__all__ = ["Inventory", "LoadedPlugin", "PluginFailure", "PluginOrigin", "PluginRegistry", "load_plugins"]
