"""Finding entry points: the shortcut over plain folders finds what importlib.metadata finds."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from mmcore.plugins import load_plugins
from mmcore.plugins.installed import find_plugins, normalized

ODD = """[console_scripts]
mmcore = somewhere:main

[mmcore]
# a remark
one=odd_one
two : three = odd_two:sub.object [extra]

[mmcore.other]
four = odd_four
"""


def by_importlib(group: str) -> set[tuple[str, str, str, str]]:
    points = importlib.metadata.entry_points(group=group)
    return {
        (p.name, p.value.partition("[")[0].strip(), p.dist.name, p.dist.version) for p in points if p.dist
    }


def by_mmcore(group: str) -> set[tuple[str, str, str, str]]:
    found = find_plugins(group)
    return {(p.origin.name, p.value, p.origin.distribution, p.origin.version) for p in found}


def test_equal_to_importlib_metadata_here() -> None:
    for group in ("mmcore", "console_scripts", "pytest11"):
        assert by_mmcore(group) == by_importlib(group)
    assert by_mmcore("console_scripts")


def test_equal_to_importlib_metadata_on_odd_files(site: Any) -> None:
    site.install("Odd.Name_here", {}, {})
    (site.folder / "Odd.Name_here-1.0.dist-info" / "entry_points.txt").write_text(ODD)
    importlib.invalidate_caches()
    expected = {("one", "odd_one", "Odd.Name_here", "1.0")}
    expected |= {("two : three", "odd_two:sub.object", "Odd.Name_here", "1.0")}
    assert {row for row in by_mmcore("mmcore") if row[2].startswith("Odd")} == expected
    assert {row for row in by_importlib("mmcore") if row[2].startswith("Odd")} == expected


def test_of_a_distribution_twice_on_the_path_the_first_counts(
    site: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.family("ant", "AntModel")
    later = tmp_path / "later" / "mmcore_plugin_ant-0.5.dist-info"
    later.mkdir(parents=True)
    (later / "METADATA").write_text("Name: MMCore.Plugin.Ant\nVersion: 0.5\n")
    (later / "entry_points.txt").write_text("[mmcore]\nolder = fake_older\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(later.parent)])
    found = [p for p in find_plugins("mmcore") if normalized(p.origin.distribution) == "mmcore-plugin-ant"]
    assert [(p.origin.name, p.origin.version) for p in found] == [("ant", "1.0")]


def test_a_plugin_inside_an_archive_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "zipped.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("zipped-2.0.dist-info/METADATA", "Name: zipped\nVersion: 2.0\n")
        file.writestr("zipped-2.0.dist-info/entry_points.txt", "[mmcore]\nzipped = fake_zipped\n")
        source = "from mmcore import hookimpl\n@hookimpl\ndef mmcore_register_adapters():\n    return []\n"
        file.writestr("fake_zipped.py", source)
    monkeypatch.syspath_prepend(str(archive))
    inventory = load_plugins({}).inventory
    assert ("zipped", "2.0") in {(p.origin.distribution, p.origin.version) for p in inventory.plugins}
    monkeypatch.delitem(sys.modules, "fake_zipped")
