"""Loading: one by one, and nothing a plugin does takes another down."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from mmcore.errors import PluginLoadError

BREAKS = {
    "import": ("import module_that_is_nowhere", "module_that_is_nowhere"),
    "syntax": ("def broken(:", "SyntaxError"),
    "exit": ("raise SystemExit(3)", "SystemExit"),
    "arguments": (
        "from mmcore import hookimpl\n@hookimpl\ndef mmcore_register_adapters(colour):\n    return []",
        "colour",
    ),
    "misspelt": (
        "from mmcore import hookimpl\n@hookimpl\ndef mmcore_register_adaptors():\n    return []",
        "mmcore_register_adaptors",
    ),
    "unmarked": ("def mmcore_register_adapters():\n    return []", "hookimpl"),
    "hookless": ("x = 1", "none of the hooks"),
    "raises": (
        "from mmcore import hookimpl\n@hookimpl\ndef mmcore_register_adapters():\n    raise KeyError('oh')",
        "KeyError",
    ),
    "wrong kind": (
        "from mmcore import hookimpl\n@hookimpl\ndef mmcore_register_adapters():\n    return ['adapter']",
        "no AdapterInfo",
    ),
    "target": (
        "from mmcore import AdapterInfo, hookimpl\n@hookimpl\ndef mmcore_register_adapters():\n"
        "    return [AdapterInfo(name='a', target='module')]",
        "module:Class",
    ),
    "architectures": (
        "from mmcore import AdapterInfo, hookimpl\n@hookimpl\ndef mmcore_register_adapters():\n"
        "    return [AdapterInfo(name='a', target='m:C', architectures='Arch')]",
        "tuple of strings",
    ),
}


def test_all_load_in_entry_point_order(site: Any) -> None:
    site.family("zebra", "ZebraModel")
    site.family("ant", "AntModel")
    inventory = site.load().inventory
    assert [plugin.origin.name for plugin in inventory.plugins] == ["ant", "zebra"]
    assert [info.name for info in inventory.adapters] == ["ant", "zebra"]
    assert inventory.plugins[0].origin.distribution == "mmcore-plugin-ant"
    assert inventory.plugins[0].origin.version == "1.0"


def test_nothing_installed(site: Any) -> None:
    assert site.load().inventory.plugins == ()


@pytest.mark.parametrize("kind", BREAKS)
def test_a_broken_plugin_is_a_record_and_its_neighbours_load(site: Any, kind: str) -> None:
    source, named = BREAKS[kind]
    site.family("ant", "AntModel")
    site.install("mmcore-plugin-bad", {"bad": "fake_bad"}, {"fake_bad": source})
    site.family("zebra", "ZebraModel")
    registry = site.load()
    assert [plugin.origin.name for plugin in registry.inventory.plugins] == ["ant", "zebra"]
    (failure,) = registry.inventory.failures
    assert failure.origin.distribution == "mmcore-plugin-bad"
    assert named in failure.reason
    assert "MMCORE_DISABLE_PLUGINS=bad" in failure.cure
    assert registry.resolve({"architectures": ["ZebraModel"]}).name == "zebra"


@pytest.mark.parametrize("kind", BREAKS)
def test_strict_raises_and_names_the_plugin(site: Any, kind: str) -> None:
    source, named = BREAKS[kind]
    site.install("mmcore-plugin-bad", {"bad": "fake_bad"}, {"fake_bad": source})
    with pytest.raises(PluginLoadError, match="mmcore-plugin-bad") as raised:
        site.load(MMCORE_STRICT_PLUGINS="1")
    assert named in str(raised.value)


def test_strict_switched_off(site: Any) -> None:
    site.install("mmcore-plugin-bad", {"bad": "fake_bad"}, {"fake_bad": "1 / 0"})
    assert len(site.load(MMCORE_STRICT_PLUGINS="0").inventory.failures) == 1


def test_a_half_registered_plugin_leaves_no_hook_behind(site: Any) -> None:
    """The good hook sorts before the bad one, so an old pluggy has registered it when the bad one fails."""
    source = """
        from mmcore import hookimpl

        @hookimpl
        def mmcore_fetch_media(url, policy):
            return b"from a plugin that did not load"

        @hookimpl
        def mmcore_request_finished(output, colour):
            pass
    """
    site.install("mmcore-plugin-half", {"half": "fake_half"}, {"fake_half": source})
    registry = site.load()
    assert len(registry.inventory.failures) == 1
    assert registry.fetch_media("s3://bucket/key", None) is None


@pytest.mark.parametrize("name", ["bad", "mmcore-plugin-bad", "MMCore_Plugin.Bad"])
def test_a_disabled_plugin_is_not_imported(site: Any, name: str) -> None:
    site.install("mmcore-plugin-bad", {"bad": "fake_bad"}, {"fake_bad": "1 / 0"})
    site.family("ant", "AntModel")
    inventory = site.load(MMCORE_DISABLE_PLUGINS=f" {name} , ").inventory
    assert [origin.name for origin in inventory.disabled] == ["bad"]
    assert inventory.failures == ()
    assert inventory.unmatched == ()
    assert "fake_bad" not in sys.modules


def test_disabling_what_is_not_there_is_noticed(site: Any) -> None:
    site.family("ant", "AntModel")
    assert site.load(MMCORE_DISABLE_PLUGINS="atn,ant").inventory.unmatched == ("atn",)


def test_a_taken_entry_point_name_is_noticed(site: Any) -> None:
    site.family("ant", "AntModel")
    site.install("stranger-ant", {"ant": "fake_stranger"}, {"fake_stranger": "1 / 0"})
    inventory = site.load().inventory
    assert [plugin.origin.distribution for plugin in inventory.plugins] == ["mmcore-plugin-ant"]
    (failure,) = inventory.failures
    assert failure.origin.distribution == "stranger-ant"
    assert "mmcore-plugin-ant 1.0" in failure.reason
    assert "fake_stranger" not in sys.modules


def test_the_way_out_of_a_taken_name_works(site: Any) -> None:
    site.family("ant", "AntModel")
    site.install("stranger-ant", {"ant": "fake_stranger"}, {"fake_stranger": "x = 1"})
    (failure,) = site.load(MMCORE_DISABLE_PLUGINS="mmcore-plugin-ant").inventory.failures
    assert failure.origin.distribution == "stranger-ant"
    assert "none of the hooks" in failure.reason


def test_one_module_behind_two_names_is_noticed(site: Any) -> None:
    site.family("ant", "AntModel")
    site.install("mmcore-plugin-bee", {"bee": "fake_ant"}, {})
    registry = site.load()
    assert [failure.origin.name for failure in registry.inventory.failures] == ["bee"]
    assert registry.resolve({"architectures": ["AntModel"]}).name == "ant"


def test_a_damaged_entry_points_file_is_the_failure_of_its_own_plugin(site: Any) -> None:
    site.family("ant", "AntModel")
    site.install("mmcore-plugin-bad", {}, {})
    damaged = site.folder / "mmcore_plugin_bad-1.0.dist-info" / "entry_points.txt"
    damaged.write_text("[mmcore]\nno equals sign here\n")
    inventory = site.load().inventory
    assert [plugin.origin.name for plugin in inventory.plugins] == ["ant"]
    assert [failure.origin.distribution for failure in inventory.failures] == ["mmcore-plugin-bad"]


def test_a_damaged_file_of_a_stranger_is_no_failure(site: Any) -> None:
    site.family("ant", "AntModel")
    site.install("stranger", {}, {})
    damaged = site.folder / "stranger-1.0.dist-info" / "entry_points.txt"
    damaged.write_text("[console_scripts]\nno equals sign here\n")
    inventory = site.load().inventory
    assert len(inventory.plugins) == 1
    assert inventory.failures == ()


def test_a_distribution_without_metadata_loads(site: Any) -> None:
    site.family("ant", "AntModel")
    (site.folder / "mmcore_plugin_ant-1.0.dist-info" / "METADATA").unlink()
    assert [info.name for info in site.load().inventory.adapters] == ["ant"]


def test_registries_share_nothing(site: Any) -> None:
    site.family("ant", "AntModel")
    one = site.load()
    two = site.load(MMCORE_DISABLE_PLUGINS="ant")
    assert [info.name for info in one.inventory.adapters] == ["ant"]
    assert two.inventory.adapters == ()
