"""The plugins of this repository are ones that load."""

from __future__ import annotations

import importlib.metadata
import json
import tomllib
from pathlib import Path

import pytest

import mmcore
from mmcore.plugins import load_plugins

ROOT = Path(__file__).parent.parent.parent
PROJECTS = {
    path.parent.name: tomllib.loads(path.read_text(encoding="utf-8"))
    for path in sorted(ROOT.glob("plugins/*/pyproject.toml"))
}


@pytest.mark.parametrize("name", PROJECTS)
def test_it_loads_and_builds_on_the_runtime(name: str) -> None:
    project = PROJECTS[name]["project"]
    inventory = load_plugins({}).inventory
    assert name not in {failure.origin.name: failure.reason for failure in inventory.failures}
    (plugin,) = (plugin for plugin in inventory.plugins if plugin.origin.name == name)
    assert plugin.origin.distribution == project["name"] == f"mmcore-plugin-{name}"
    assert plugin.adapters
    assert any(line.startswith("mmcore-runtime") for line in project["dependencies"])


@pytest.mark.parametrize("name", PROJECTS)
def test_the_index_names_it_for_each_architecture_it_serves(name: str) -> None:
    index = json.loads((ROOT / "mmcore" / "plugin_index.json").read_text(encoding="utf-8"))["architectures"]
    (plugin,) = (plugin for plugin in load_plugins({}).inventory.plugins if plugin.origin.name == name)
    for info in plugin.adapters:
        for architecture in info.architectures:
            assert index[architecture] == plugin.origin.distribution


def test_one_version_everywhere() -> None:
    core = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert core["version"] == mmcore.__version__ == importlib.metadata.version("mmcore-runtime")
