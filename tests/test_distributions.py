"""What `make dist` builds: each wheel holds what it needs, and installs where nothing else is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from mmcore_llava.testing import write_tiny_checkpoint

ROOT = Path(__file__).parents[1]
PROJECTS = (ROOT, *sorted(file.parent for file in ROOT.glob("plugins/*/pyproject.toml")))
LARGE = {"mmcore_plugin_qwen2vl": 16_000_000}
"""Bytes of a distribution that carries weights; the others stay under `SMALL`."""
SMALL = 1_000_000

ANSWER = """
import sys
from mmcore import LLM, SamplingParams, TextPrompt
from PIL import Image

prompt = TextPrompt(prompt="What?", multi_modal_data={"image": [Image.new("RGB", (30, 20), "red")]})
with LLM(sys.argv[1]) as llm:
    output = llm.generate(prompt, SamplingParams(max_tokens=4, ignore_eos=True))
print(len(output.token_ids))
"""

BROKEN = {
    "twin": (
        "from mmcore import AdapterInfo, hookimpl\n@hookimpl\ndef mmcore_register_adapters():\n"
        "    served = ('LlavaForConditionalGeneration',)\n"
        "    return [AdapterInfo(name='twin', target='m:C', architectures=served)]\n"
    ),
    "newer": (
        "from mmcore import AdapterInfo, hookimpl\n@hookimpl\ndef mmcore_register_adapters():\n"
        "    return [AdapterInfo(name='newer', target='m:C', architectures=('NewModel',), api_version=99)]\n"
    ),
    "raising": "raise RuntimeError('nothing works here')\n",
}


def run(*command: object, **environ: str) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MMCORE"))}
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        cwd="/",
        env={**own, **environ},
        timeout=900,
    )


def done(*command: object, **environ: str) -> str:
    result = run(*command, **environ)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheels made from the sdists, as `make dist` makes them."""
    folder = tmp_path_factory.mktemp("dist")
    for project in PROJECTS:
        done(sys.executable, "-m", "build", "--quiet", "--outdir", folder, project)
    return folder


@pytest.fixture(scope="module")
def clean(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an environment where pip was asked for the plugin of LLaVA alone."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=True)
    pins = ROOT / "constraints-cpu.txt"
    find = ("--find-links", dist, "--constraint", pins)
    done(folder / "bin" / "pip", "install", "--quiet", *find, "mmcore-plugin-llava")
    return folder


def tracked(project: Path, folder: str) -> set[str]:
    """Files of a folder that the repository has: modules, and data such as templates, pictures, figures."""
    listed = done("git", "-C", project, "ls-files", "--cached", "--others", "--exclude-standard", folder)
    return {name for name in listed.splitlines() if (project / name).exists()}


def names(project: Path) -> tuple[str, str]:
    """Distribution as files spell it, and import name."""
    table = tomllib.loads((project / "pyproject.toml").read_text())
    (package,) = table["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return table["project"]["name"].replace("-", "_"), package


@pytest.mark.slow
@pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project.name)
def test_a_wheel_holds_its_package_and_no_more(dist: Path, project: Path) -> None:
    distribution, package = names(project)
    (wheel,) = dist.glob(f"{distribution}-*.whl")
    members = zipfile.ZipFile(wheel).namelist()
    info = next(name for name in members if name.endswith("/METADATA")).partition("/")[0]
    assert {name.partition("/")[0] for name in members} == {package, info}
    inside = {name for name in members if name.startswith(f"{package}/")}
    assert inside == tracked(project, package)
    assert f"{package}/py.typed" in inside
    assert f"{info}/licenses/LICENSE" in members
    readme = (project / "README.md").read_text()
    assert readme.strip() in zipfile.ZipFile(wheel).read(f"{info}/METADATA").decode()
    assert wheel.stat().st_size < LARGE.get(distribution, SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project.name)
def test_an_sdist_has_what_the_repository_has_of_it(dist: Path, project: Path) -> None:
    distribution, package = names(project)
    (sdist,) = dist.glob(f"{distribution}-*.tar.gz")
    with tarfile.open(sdist) as archive:
        members = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", *tracked(project, package)} <= members
    assert members - {"PKG-INFO", ".gitignore"} <= tracked(project, ".")
    assert not any(name.startswith("plugins/") for name in members)
    assert sdist.stat().st_size < LARGE.get(distribution, SMALL)


@pytest.mark.slow
def test_a_plugin_brings_the_core_and_runs(clean: Path, tmp_path: Path) -> None:
    model = write_tiny_checkpoint(tmp_path)
    assert done(clean / "bin" / "python", "-c", ANSWER, model).split() == ["4"]
    assert "llava" in done(clean / "bin" / "mmcore", "plugins")


@pytest.mark.slow
def test_the_core_s_wheel_brings_what_a_new_adapter_is_made_of(clean: Path, tmp_path: Path) -> None:
    done(clean / "bin" / "mmcore", "new-adapter", "acme", "--into", tmp_path)
    assert (tmp_path / "mmcore-plugin-acme" / "mmcore_acme" / "adapter.py").is_file()


@pytest.mark.slow
def test_bad_neighbours_are_shown_and_hurt_nobody(clean: Path, tmp_path: Path) -> None:
    site = str(neighbours(tmp_path / "site", BROKEN))
    shown = done(clean / "bin" / "mmcore", "plugins", PYTHONPATH=site)
    newer = "needs a newer mmcore"
    for said in ("llava", *BROKEN, "nothing works here", newer, "is served by 'llava' and 'twin'"):
        assert said in shown
    told = json.loads(done(clean / "bin" / "mmcore", "plugins", "--json", PYTHONPATH=site))
    statuses = {plugin["name"]: plugin["status"] for plugin in told["plugins"]}
    assert statuses == {"llava": "ok", "twin": "ok", "newer": newer, "raising": "broken"}
    assert told["contested"] == {"LlavaForConditionalGeneration": ["llava", "twin"]}
    python = (clean / "bin" / "python", "-c", ANSWER)
    unclaimed = write_tiny_checkpoint(tmp_path / "next", "next")
    assert done(*python, unclaimed, PYTHONPATH=site).split() == ["4"]
    claimed = run(*python, write_tiny_checkpoint(tmp_path / "1.5"), PYTHONPATH=site)
    assert "AmbiguousAdapterError" in claimed.stderr
    chosen = (*python[:2], ANSWER.replace("LLM(sys.argv[1])", "LLM(sys.argv[1], adapter='llava')"))
    assert done(*chosen, tmp_path / "1.5", PYTHONPATH=site).split() == ["4"]


@pytest.mark.slow
def test_a_plugin_taken_away_is_named(clean: Path, tmp_path: Path) -> None:
    done(clean / "bin" / "pip", "uninstall", "--quiet", "--yes", "mmcore-plugin-llava")
    refused = run(clean / "bin" / "mmcore", "generate", write_tiny_checkpoint(tmp_path), "--prompt", "Hello")
    assert refused.returncode == 1
    assert "pip install mmcore-plugin-llava" in refused.stderr


def neighbours(site: Path, sources: Mapping[str, str]) -> Path:
    """Distributions as pip leaves them, one a source."""
    for name, source in sources.items():
        info = site / f"mmcore_plugin_{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: mmcore-plugin-{name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[mmcore]\n{name} = near_{name}\n")
        (site / f"near_{name}.py").write_text(source)
    return site
