"""``mmcore new-adapter``: what it writes installs, is clean and keeps every law; what it refuses."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcore.cli import main
from mmcore.cli.new_adapter import check_free
from mmcore.cli.new_adapter_files import LONGEST, NAME, TEMPLATES, NewPackage
from mmcore.errors import ConfigError
from mmcore.manifest import AdapterInfo
from mmcore.plugins import Inventory, LoadedPlugin, PluginOrigin, PluginRegistry, load_plugins
from mmcore.testing.laws import LAWS

BIN = Path(sys.executable).parent
NAMES = ("a", "acme-vl", "x" * LONGEST, "-".join("abc123abc123abc"))
"""Short and long ones: line widths and the order of imports depend on them."""


def run(*command: object, cwd: Path, **environ: str) -> str:
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PYTEST", "MMCORE"))
    }
    result = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**own, "OMP_NUM_THREADS": "1", **environ},
        timeout=900,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def registry_of(*adapters: AdapterInfo) -> PluginRegistry:
    origin = PluginOrigin("ant", "mmcore-plugin-ant", "1.2")
    manager = load_plugins({"MMCORE_DISABLE_PLUGINS": ""})._manager
    return PluginRegistry(manager, Inventory(plugins=(LoadedPlugin(origin, None, adapters),)))


# ------------------------------------------------------------------ what is written


def test_it_writes_a_package_and_says_what_is_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new-adapter", "acme-vl", "--into", str(tmp_path / "some" / "where")]) == 0
    folder = tmp_path / "some" / "where" / "mmcore-plugin-acme-vl"
    written = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert written == NewPackage.named("acme-vl").files().keys()
    said = capsys.readouterr().out
    assert f"cd {folder}" in said
    assert "mmcore conformance acme-vl" in said


def test_a_name_stands_wherever_it_is_needed() -> None:
    texts = NewPackage.named("acme-vl", "AcmeModel").files()
    project = tomllib.loads(texts["pyproject.toml"])
    assert project["project"]["name"] == "mmcore-plugin-acme-vl"
    assert project["project"]["entry-points"]["mmcore"] == {"acme-vl": "mmcore_acme_vl"}
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["mmcore_acme_vl"]
    assert "class AcmeVlAdapter:" in texts["mmcore_acme_vl/adapter.py"]
    for said in ('name="acme-vl"', '"mmcore_acme_vl.adapter:AcmeVlAdapter"', '("AcmeModel",)'):
        assert said in texts["mmcore_acme_vl/__init__.py"]
    assert not [path for path, text in texts.items() if re.search(r"\$(?!\{\{)", path + text)]


def test_each_template_is_used() -> None:
    there = {entry.name for entry in files("mmcore").joinpath("scaffold").iterdir()}
    assert there == {f"{template}.tmpl" for template in TEMPLATES.values() if template}


def test_the_workflow_runs_what_the_readme_says() -> None:
    yaml: Any = import_module("yaml")
    texts = NewPackage.named("acme").files()
    (job,) = yaml.safe_load(texts[".github/workflows/test.yml"])["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands[0] in texts["README.md"]
    assert commands[-1] == "pytest"
    assert "${{ matrix.python }}" in texts[".github/workflows/test.yml"]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_passes_ruff(name: str, tmp_path: Path) -> None:
    folder = NewPackage.named(name).write(tmp_path)
    run(BIN / "ruff", "check", "--no-cache", cwd=folder)
    run(BIN / "ruff", "format", "--no-cache", "--check", "--diff", cwd=folder)


# ------------------------------------------------------------------ what is refused


@given(st.text(max_size=LONGEST + 5) | st.from_regex(NAME, fullmatch=True))
def test_a_name_makes_a_package_or_is_refused(name: str) -> None:
    try:
        package = NewPackage.named(name)
    except ConfigError as error:
        refused = str(error)
    else:
        assert package.module.isidentifier()
        assert package.architecture.isidentifier()
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", package.distribution)
        return
    assert refused.startswith(f"{name!r} is no adapter's name")
    near = re.search(r"; '(.*)' would do", refused)
    assert near is None or NewPackage.named(near[1]).name == near[1]


@pytest.mark.parametrize(("name", "near"), [("Acme_VL", "acme-vl"), ("3d.net", "d-net"), ("a--b", "a-b")])
def test_a_bad_name_is_refused_with_the_nearest_good_one(
    name: str, near: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new-adapter", name, "--into", str(tmp_path)]) == 2
    assert f"; '{near}' would do" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_architecture_is_the_name_of_a_class() -> None:
    with pytest.raises(ConfigError, match=r"'my model' is no name of a class; give what"):
        NewPackage.named("acme", "my model")


def test_a_folder_that_is_there_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = NewPackage.named("acme").write(tmp_path)
    (folder / "README.md").write_text("mine")
    assert main(["new-adapter", "acme", "--into", str(tmp_path)]) == 2
    assert "is there already: take it away, choose another name" in capsys.readouterr().err
    assert (folder / "README.md").read_text() == "mine"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot write .*file.*: Not a directory; choose a place"):
        NewPackage.named("acme").write(tmp_path / "file")


def test_what_cannot_be_finished_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"one.py": "", "one.py/two.py": ""}
    monkeypatch.setattr(NewPackage, "files", lambda self: texts)
    with pytest.raises(ConfigError, match="cannot write"):
        NewPackage.named("acme").write(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_name_that_an_installed_adapter_has_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new-adapter", "llava", "--into", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "adapter 'llava' of plugin 'llava'" in said
    assert "choose another name, or uninstall that one first" in said
    assert not list(tmp_path.iterdir())


def test_an_architecture_that_an_installed_adapter_serves_is_refused() -> None:
    ant = AdapterInfo(name="ant", target="m:C", architectures=("AcmeForConditionalGeneration",))
    with pytest.raises(ConfigError, match=r"serves AcmeForConditionalGeneration: .*extends=\"ant\""):
        check_free(registry_of(ant), NewPackage.named("acme"))
    check_free(registry_of(ant), NewPackage.named("acme", "OtherModel"))


def test_a_module_that_is_installed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mmcore_acme.py").write_text("raise AssertionError('never imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match="a module mmcore_acme is installed"):
        check_free(registry_of(), NewPackage.named("acme"))


# ------------------------------------------------------------------ as an author does it


@pytest.mark.slow
def test_it_installs_and_keeps_every_law_as_it_is_written(tmp_path: Path) -> None:
    """By the commands that it prints, in processes of their own, without a network."""
    run(BIN / "mmcore", "new-adapter", "acme-vl", cwd=tmp_path)
    folder, site = tmp_path / "mmcore-plugin-acme-vl", tmp_path / "site"
    pip = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    )
    run(*pip, "--target", site, folder, cwd=tmp_path)
    assert (site / "mmcore_acme_vl" / "py.typed").is_file()
    assert "acme-vl" in run(BIN / "mmcore", "plugins", cwd=tmp_path, PYTHONPATH=str(site))
    report = run(BIN / "mmcore", "conformance", "acme-vl", "--json", cwd=tmp_path, PYTHONPATH=str(site))
    found = json.loads(report)
    assert found["conforms"]
    assert [verdict["law"] for verdict in found["verdicts"]] == [law.name for law in LAWS]
    assert {verdict["verdict"] for verdict in found["verdicts"]} == {"held"}
    passed = run(sys.executable, "-m", "pytest", cwd=folder, PYTHONPATH=str(site))
    assert f"{len(LAWS)} passed" in passed
    run(BIN / "mypy", "mmcore_acme_vl", "tests", cwd=folder)
