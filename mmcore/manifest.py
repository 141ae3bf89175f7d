"""What a plugin's manifest says: its adapters and backends. Light to import, standard library only."""

from __future__ import annotations

from dataclasses import dataclass

API_VERSION = 1
"""Version of the contract in `mmcore.adapter`. A newer adapter is refused, an older supported one warns."""
OLDEST_API_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterInfo:
    """A manifest's line about one adapter. Nothing is imported until the adapter is chosen."""

    name: str
    target: str
    """``"module:Class"``."""
    architectures: tuple[str, ...] = ()
    """Values of ``architectures`` in ``config.json``. Empty with ``extends``: chosen by name only."""
    api_version: int = API_VERSION
    extends: str | None = None
    description: str = ""
    testing: str = ""
    """``"module:FAMILY"``: what the conformance kit tries its laws on (`mmcore.testing.family.Family`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendInfo:
    """A manifest's line about one attention backend."""

    name: str
    target: str
    devices: tuple[str, ...] = ("cuda",)
    api_version: int = API_VERSION
