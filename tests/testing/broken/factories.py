"""Factories that read a config less than well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmcore_qwen2vl.adapter import Qwen2VLAdapter
from testing.broken.record import Broken

from mmcore.adapter import Adapter, CheckpointFiles
from mmcore.errors import CheckpointError


class OnlyTheTinyOne:
    """Written beside one checkpoint, and tried on no other."""

    @staticmethod
    def from_config(config: Mapping[str, Any], files: CheckpointFiles) -> Adapter:
        if config["hidden_size"] > 1000:
            raise CheckpointError("hidden_size is too large")
        return Qwen2VLAdapter.from_config(config, files)


class NewNamesOnly:
    """Field names moved with a release of transformers; published files keep the old ones."""

    @staticmethod
    def from_config(config: Mapping[str, Any], files: CheckpointFiles) -> Adapter:
        if config["hidden_size"] > 1000 and "rope_parameters" not in config:
            raise CheckpointError("rope_parameters is missing")
        return Qwen2VLAdapter.from_config(config, files)


class Bare:
    """A missing field is a KeyError."""

    @staticmethod
    def from_config(config: Mapping[str, Any], files: CheckpointFiles) -> Adapter:
        config["vision_config"]["patch_size"]
        return Qwen2VLAdapter.from_config(config, files)


class Silent:
    """What it does not know it gives up without a word."""

    @staticmethod
    def from_config(config: Mapping[str, Any], files: CheckpointFiles) -> Adapter | None:
        try:
            return Qwen2VLAdapter.from_config(config, files)
        except CheckpointError:
            return None


def _by(factory: type) -> str:
    return f"{__name__}:{factory.__name__}"


FAULTS = (
    Broken(
        "manifest_is_light",
        name="imports numpy",
        target="testing.broken.heavy_manifest.adapter:Any",
        hidden=True,
    ),
    Broken(
        "manifest_is_light",
        name="computes at import",
        target="testing.broken.slow_manifest.adapter:Any",
        hidden=True,
    ),
    Broken("published_configs_are_served", name="only the tiny one", target=_by(OnlyTheTinyOne), hidden=True),
    Broken("published_configs_are_served", name="new names only", target=_by(NewNamesOnly), hidden=True),
    Broken("strange_configs_are_refused", name="bare KeyError", target=_by(Bare), hidden=True),
    Broken("strange_configs_are_refused", name="gives None", target=_by(Silent), hidden=True),
)
