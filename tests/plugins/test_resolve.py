"""`resolve()`: the adapter for a checkpoint, or an error that says what to do."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from mmcore.errors import (
    AmbiguousAdapterError,
    CheckpointError,
    PluginVersionError,
    UnknownAdapterError,
    UnknownArchitectureError,
)
from mmcore.manifest import AdapterInfo
from mmcore.plugins import Inventory
from mmcore.plugins.choosing import check_api_version

ANT = {"architectures": ["AntModel"]}


def test_by_architecture_and_by_name(site: Any) -> None:
    site.family("ant", "AntModel", "AntModel2")
    site.family("bee", "BeeModel")
    registry = site.load()
    assert registry.resolve({"architectures": ["AntModel2"]}).name == "ant"
    assert registry.resolve({"architectures": ["Unheard", "BeeModel"]}).name == "bee"
    assert registry.resolve(ANT, "bee").name == "bee"
    assert registry.resolve({}, "bee").name == "bee"


def test_two_adapters_for_one_architecture_name_both_and_the_ways_out(site: Any) -> None:
    site.family("ant", "AntModel")
    site.family("rival", "AntModel")
    registry = site.load()
    with pytest.raises(AmbiguousAdapterError) as raised:
        registry.resolve(ANT)
    message = str(raised.value)
    for part in ("'ant'", "'rival'", "mmcore-plugin-ant 1.0", "adapter='rival'", "MMCORE_DISABLE_PLUGINS="):
        assert part in message
    assert registry.resolve(ANT, "rival").name == "rival"
    assert site.load(MMCORE_DISABLE_PLUGINS="ant").resolve(ANT).name == "rival"


def test_one_name_twice_is_ambiguous_by_name(site: Any) -> None:
    site.family("ant", "AntModel")
    source = (
        "from mmcore import AdapterInfo, hookimpl\n@hookimpl\ndef mmcore_register_adapters():\n"
        "    return [AdapterInfo(name='ant', target='m:C')]"
    )
    site.install("stranger", {"stranger": "fake_stranger"}, {"fake_stranger": source})
    with pytest.raises(AmbiguousAdapterError, match="stranger") as raised:
        site.load().resolve(ANT, "ant")
    assert "adapter='ant'" not in str(raised.value)


def test_an_extension_is_never_chosen_silently(site: Any) -> None:
    source = (
        "from mmcore import AdapterInfo, hookimpl\n@hookimpl\ndef mmcore_register_adapters():\n"
        "    return [AdapterInfo(name='ant-fast', target='m:C', extends='ant', architectures=('AntModel',))]"
    )
    site.family("ant", "AntModel")
    site.install("ant-fast", {"a-fast": "fake_fast"}, {"fake_fast": source})
    registry = site.load()
    assert registry.resolve(ANT).name == "ant"
    assert registry.resolve(ANT, "ant-fast").name == "ant-fast"


def test_an_unknown_architecture_names_the_package(site: Any) -> None:
    with pytest.raises(UnknownArchitectureError, match="pip install mmcore-plugin-whisper"):
        site.load().resolve({"architectures": ["WhisperForConditionalGeneration"]})


def test_an_architecture_nobody_published_gets_general_advice(site: Any) -> None:
    with pytest.raises(UnknownArchitectureError, match="mmcore plugins") as raised:
        site.load().resolve({"architectures": ["NobodysModel"]})
    assert "NobodysModel" in str(raised.value)


def test_a_broken_plugin_is_named_as_the_likely_cause(site: Any) -> None:
    site.install(
        "mmcore-plugin-whisper", {"whisper": "fake_whisper"}, {"fake_whisper": "import nowhere_at_all"}
    )
    site.install("mmcore-plugin-bad", {"bad": "fake_bad"}, {"fake_bad": "1 / 0"})
    registry = site.load()
    with pytest.raises(UnknownArchitectureError) as raised:
        registry.resolve({"architectures": ["WhisperForConditionalGeneration"]})
    assert "likely cause: plugin 'whisper' (mmcore-plugin-whisper 1.0)" in str(raised.value)
    assert "nowhere_at_all" in str(raised.value)
    assert "mmcore-plugin-bad" not in str(raised.value)
    with pytest.raises(UnknownArchitectureError, match="mmcore-plugin-bad"):
        registry.resolve({"architectures": ["NobodysModel"]})
    with pytest.raises(UnknownAdapterError, match="mmcore-plugin-bad"):
        registry.resolve({}, "bad")


def test_a_disabled_plugin_is_named_as_the_likely_cause(site: Any) -> None:
    site.family("whisper", "WhisperForConditionalGeneration")
    with pytest.raises(UnknownArchitectureError, match="switched off by MMCORE_DISABLE_PLUGINS"):
        site.load(MMCORE_DISABLE_PLUGINS="whisper").resolve(
            {"architectures": ["WhisperForConditionalGeneration"]}
        )


def test_an_unknown_name_lists_the_known_ones(site: Any) -> None:
    site.family("ant", "AntModel")
    site.family("bee", "BeeModel")
    with pytest.raises(UnknownAdapterError, match="'ant', 'bee'"):
        site.load().resolve(ANT, "wasp")


@pytest.mark.parametrize(
    "config", [{}, {"architectures": []}, {"architectures": "A"}, {"architectures": [1]}]
)
def test_a_config_without_usable_architectures(site: Any, config: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="architectures"):
        site.load().resolve(config)


def test_a_newer_contract_is_refused(site: Any) -> None:
    source = (
        "from mmcore import AdapterInfo, hookimpl\n@hookimpl\ndef mmcore_register_adapters():\n"
        "    return [AdapterInfo(name='ant', target='m:C', architectures=('AntModel',), api_version=99)]"
    )
    site.install("mmcore-plugin-ant", {"ant": "fake_ant"}, {"fake_ant": source})
    with pytest.raises(
        PluginVersionError, match=r"mmcore-plugin-ant 1\.0.*version 99.*upgrade mmcore-runtime"
    ):
        site.load().resolve(ANT)


def test_an_older_supported_contract_warns_and_a_forgotten_one_is_refused() -> None:
    info = AdapterInfo(name="ant", target="m:C", api_version=2)
    with pytest.warns(FutureWarning, match="adapter 'ant' is written for contract version 2"):
        check_api_version(info, Inventory(), newest=3, oldest=2)
    with pytest.raises(PluginVersionError, match="upgrade the plugin"):
        check_api_version(info, Inventory(), newest=4, oldest=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_api_version(info, Inventory(), newest=2, oldest=1)
