"""Which adapter serves a checkpoint, and how it is built."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from mmcore.errors import (
    AmbiguousAdapterError,
    CheckpointError,
    MMCoreError,
    PluginLoadError,
    PluginVersionError,
    UnknownAdapterError,
    UnknownArchitectureError,
)
from mmcore.manifest import API_VERSION, OLDEST_API_VERSION, AdapterInfo
from mmcore.plugins import advice
from mmcore.plugins.records import Inventory

if TYPE_CHECKING:
    from mmcore.adapter import Adapter, CheckpointFiles


def resolve(inventory: Inventory, config: Mapping[str, Any], name: str | None = None) -> AdapterInfo:
    """By ``name`` where one is given, else by the config's ``architectures``."""
    info = _by_architecture(inventory, config) if name is None else _by_name(inventory, name)
    check_api_version(info, inventory)
    return info


def load_adapter(
    inventory: Inventory,
    info: AdapterInfo,
    config: Mapping[str, Any],
    files: CheckpointFiles,
    above: tuple[str, ...] = (),
) -> Adapter:
    """``above`` holds the adapters that extend this one, so that a circle is told and not walked."""
    check_api_version(info, inventory)
    if info.name in above:
        raise PluginLoadError(f"adapters extend each other in a circle: {' -> '.join((*above, info.name))}")
    if info.extends is None:
        return _build(inventory, info, "from_config", (config, files))
    base = _by_name(inventory, info.extends, wanted_by=info.name)
    built = load_adapter(inventory, base, config, files, (*above, info.name))
    return _build(inventory, info, "from_base", (built, config, files))


def check_api_version(
    info: AdapterInfo, inventory: Inventory, newest: int = API_VERSION, oldest: int = OLDEST_API_VERSION
) -> None:
    """Refuse an adapter of a contract that this mmcore does not know; warn where it is an old one."""
    who = advice.describe(info, inventory)
    if info.api_version > newest:
        raise PluginVersionError(
            f"{who} is written for contract version {info.api_version}, this mmcore knows up to {newest}; "
            "upgrade mmcore-runtime, or install an older release of the plugin"
        )
    if info.api_version < oldest:
        raise PluginVersionError(
            f"{who} is written for contract version {info.api_version}, this mmcore knows "
            f"{oldest} to {newest}; upgrade the plugin"
        )
    if info.api_version < newest:
        warnings.warn(
            f"{who} is written for contract version {info.api_version}; version {newest} is current "
            "and a later mmcore will refuse it: upgrade the plugin",
            FutureWarning,
            stacklevel=2,
        )


def _by_architecture(inventory: Inventory, config: Mapping[str, Any]) -> AdapterInfo:
    """An adapter that extends another is never taken here: it is chosen by name."""
    architectures = _architectures(config)
    own = [info for info in inventory.adapters if info.extends is None]
    for architecture in architectures:
        fitting = [info for info in own if architecture in info.architectures]
        if len(fitting) > 1:
            _ambiguous(inventory, f"architecture '{architecture}'", fitting)
        if fitting:
            return fitting[0]
    raise UnknownArchitectureError(advice.unknown_architecture(architectures, inventory))


def _by_name(inventory: Inventory, name: str, wanted_by: str | None = None) -> AdapterInfo:
    fitting = [info for info in inventory.adapters if info.name == name]
    if len(fitting) > 1:
        _ambiguous(inventory, f"name '{name}'", fitting)
    if not fitting:
        raise UnknownAdapterError(advice.unknown_adapter(name, inventory, wanted_by))
    return fitting[0]


def _architectures(config: Mapping[str, Any]) -> tuple[str, ...]:
    value = config.get("architectures")
    if not value:
        raise CheckpointError(
            "config.json names no architectures, so no adapter can be found by them; "
            "choose one by name: LLM(..., adapter=NAME)"
        )
    if isinstance(value, str) or not all(isinstance(name, str) for name in value):
        raise CheckpointError(f"architectures in config.json must be a list of strings (got {value!r})")
    return tuple(value)


def _ambiguous(inventory: Inventory, what: str, fitting: Sequence[AdapterInfo]) -> NoReturn:
    raise AmbiguousAdapterError(advice.ambiguous(what, fitting, inventory))


def _build(inventory: Inventory, info: AdapterInfo, method: str, arguments: tuple[Any, ...]) -> Adapter:
    from mmcore.adapter import Adapter  # imported here: listing plugins shall not pay for it

    who = advice.describe(info, inventory)
    factory = getattr(_target(info, who), method, None)
    if factory is None:
        raise PluginLoadError(f"{who}: {info.target} has no method '{method}'")
    try:
        adapter = factory(*arguments)
    except MMCoreError:
        raise
    except Exception as error:
        raise PluginLoadError(
            f"{who} failed on this checkpoint: {type(error).__name__}: {error}; report it to its authors"
        ) from error
    if not isinstance(adapter, Adapter):
        raise PluginLoadError(f"{who}: {info.target}.{method} gave {type(adapter).__name__}, no Adapter")
    return adapter


def _target(info: AdapterInfo, who: str) -> Any:
    module, _, name = info.target.partition(":")
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise PluginLoadError(
            f"{who} could not be imported from {info.target}: {type(error).__name__}: {error}; "
            "reinstall or upgrade its plugin"
        ) from error
    return found
