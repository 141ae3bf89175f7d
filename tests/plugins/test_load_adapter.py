"""`load_adapter()`: the target is imported when chosen, and an extension receives its base."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from mmcore.adapter import Adapter
from mmcore.errors import CheckpointError, PluginLoadError, UnknownAdapterError

TARGETS = """
from dataclasses import replace
from mmcore.adapter import Adapter
from mmcore.errors import CheckpointError

class Ant:
    @classmethod
    def from_config(cls, config, files):
        return Adapter(name="ant", prompt=None, inputs=None, encoder=None, decoding="plain", decoder=None,
                       placeholders=(), weights=(), dtypes=(config["dtype"], files))

class Fast:
    @classmethod
    def from_base(cls, base, config, files):
        return replace(base, decoding="fast", name=base.name + "-fast")

class Refuses:
    @classmethod
    def from_config(cls, config, files):
        raise CheckpointError("hidden_size is 7")

class Raises:
    @classmethod
    def from_config(cls, config, files):
        return config["absent"]

class GivesNothing:
    @classmethod
    def from_config(cls, config, files):
        return None

class Methodless:
    pass
"""

MANIFEST = """
from mmcore import AdapterInfo, hookimpl

@hookimpl
def mmcore_register_adapters():
    def info(name, target, **more):
        return AdapterInfo(name=name, target=target, **more)

    return [
        info("ant", "fake_targets:Ant"),
        info("ant-fast", "fake_targets:Fast", extends="ant"),
        info("ant-fast-fast", "fake_targets:Fast", extends="ant-fast"),
        info("refuses", "fake_targets:Refuses"),
        info("raises", "fake_targets:Raises"),
        info("nothing", "fake_targets:GivesNothing"),
        info("methodless", "fake_targets:Methodless"),
        info("moduleless", "fake_absent:Ant"),
        info("classless", "fake_targets:Absent"),
        info("orphan", "fake_targets:Fast", extends="nobody"),
        info("egg", "fake_targets:Fast", extends="hen"),
        info("hen", "fake_targets:Fast", extends="egg"),
    ]
"""


@pytest.fixture
def registry(site: Any) -> Any:
    modules = {"fake_manifest": MANIFEST, "fake_targets": TARGETS}
    site.install("mmcore-plugin-many", {"many": "fake_manifest"}, modules)
    return site.load()


def build(registry: Any, name: str) -> Adapter:
    config = {"dtype": "float32"}
    built: Adapter = registry.load_adapter(registry.resolve(config, name), config, "files")
    return built


def test_the_target_is_imported_only_when_chosen(registry: Any) -> None:
    registry.resolve({}, "ant")
    assert "fake_targets" not in sys.modules
    adapter = build(registry, "ant")
    assert "fake_targets" in sys.modules
    assert adapter.dtypes == ("float32", "files")


def test_an_extension_receives_its_base_and_replaces_a_part(registry: Any) -> None:
    adapter = build(registry, "ant-fast")
    assert (adapter.name, str(adapter.decoding), adapter.dtypes[0]) == ("ant-fast", "fast", "float32")
    assert build(registry, "ant-fast-fast").name == "ant-fast-fast"


def test_a_refusal_passes_through(registry: Any) -> None:
    with pytest.raises(CheckpointError, match="hidden_size is 7"):
        build(registry, "refuses")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("raises", "KeyError: 'absent'"),
        ("nothing", "gave NoneType"),
        ("methodless", "no method 'from_config'"),
        ("moduleless", "fake_absent"),
        ("classless", "Absent"),
        ("egg", "egg -> hen -> egg"),
    ],
)
def test_a_faulty_target_is_told_by_name(registry: Any, name: str, why: str) -> None:
    with pytest.raises(PluginLoadError, match=why) as raised:
        build(registry, name)
    assert name in str(raised.value)


def test_an_extension_without_its_base(registry: Any) -> None:
    with pytest.raises(UnknownAdapterError, match=r"'nobody', which adapter 'orphan' extends"):
        build(registry, "orphan")
