"""``mmcore plugins``: the table and its JSON say the same, and what to do."""

from __future__ import annotations

import json
from argparse import Namespace

import pytest

from mmcore.cli.plugins import as_json, report, run_plugins
from mmcore.manifest import API_VERSION, AdapterInfo
from mmcore.plugins import Inventory, LoadedPlugin, PluginFailure, PluginOrigin


def adapter(name: str, *architectures: str, extends: str | None = None, newer: int = 0) -> AdapterInfo:
    return AdapterInfo(
        name=name,
        target="m:C",
        architectures=architectures,
        extends=extends,
        api_version=API_VERSION + newer,
    )


def plugin(name: str, *adapters: AdapterInfo) -> LoadedPlugin:
    return LoadedPlugin(PluginOrigin(name, f"mmcore-plugin-{name}", "1.2"), None, adapters)


INVENTORY = Inventory(
    plugins=(
        plugin("ant", adapter("ant", "AntModel", "AntModel2"), adapter("ant-fast", extends="ant")),
        plugin("bee", adapter("bee", "AntModel")),
        plugin("cicada", adapter("cicada", "CicadaModel", newer=1)),
        plugin("observer"),
    ),
    failures=(
        PluginFailure(PluginOrigin("dud", "mmcore-plugin-dud", "0.1"), "ImportError: oh", "Upgrade it."),
    ),
    disabled=(PluginOrigin("eel", "mmcore-plugin-eel", "3.0"),),
    unmatched=("fly",),
)


def test_the_table_has_a_row_an_architecture() -> None:
    rows = [line.split() for line in report(INVENTORY)][:9]
    assert rows[0] == ["PLUGIN", "VERSION", "ADAPTERS", "ARCHITECTURES", "STATUS"]
    assert rows[1] == ["ant", "1.2", "ant", "AntModel", "ok"]
    assert rows[2] == ["AntModel2"]
    assert rows[3] == ["ant-fast", "(extends", "ant)", "ok"]
    assert rows[5] == ["cicada", "1.2", "cicada", "CicadaModel", "needs", "a", "newer", "mmcore"]
    assert rows[6] == ["observer", "1.2", "-", "-", "ok"]
    assert rows[7] == ["dud", "0.1", "-", "-", "broken"]
    assert rows[8] == ["eel", "3.0", "-", "-", "disabled"]


def test_the_columns_stand_under_each_other() -> None:
    lines = list(report(INVENTORY))[:9]
    column = lines[0].index("STATUS")
    assert {line[column - 2 : column] for line in lines if len(line) > column} == {"  "}
    assert not any(line.endswith(" ") for line in lines)


def test_what_is_wrong_is_told_with_its_cure() -> None:
    text = "\n".join(report(INVENTORY))
    assert (
        "plugin 'dud' (mmcore-plugin-dud 0.1) did not load\n  why: ImportError: oh\n  cure: Upgrade it."
        in text
    )
    assert "AntModel is served by 'ant' and 'bee': choose by name" in text
    assert "AntModel2 is served" not in text
    assert "names what is not installed: fly" in text


def test_nothing_installed_says_how_to_install() -> None:
    (line,) = report(Inventory())
    assert "pip install mmcore-plugin-" in line


def test_json_holds_the_same_facts() -> None:
    facts = json.loads(json.dumps(as_json(INVENTORY)))
    assert facts["contested"] == {"AntModel": ["ant", "bee"]}
    plugins = {entry["name"]: entry for entry in facts["plugins"]}
    assert list(plugins) == ["ant", "bee", "cicada", "dud", "eel", "observer"]
    assert plugins["ant"]["adapters"][0]["architectures"] == ["AntModel", "AntModel2"]
    assert plugins["ant"]["adapters"][1]["extends"] == "ant"
    assert plugins["cicada"]["status"] == "needs a newer mmcore"
    assert (plugins["dud"]["reason"], plugins["dud"]["cure"]) == ("ImportError: oh", "Upgrade it.")
    assert plugins["eel"]["status"] == "disabled"
    assert facts["unmatched_disables"] == ["fly"]


@pytest.mark.parametrize("as_object", [False, True])
def test_broken_plugins_are_no_failure_of_the_command(
    as_object: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_plugins(INVENTORY, Namespace(json=as_object)) == 0
    assert "ImportError: oh" in capsys.readouterr().out
