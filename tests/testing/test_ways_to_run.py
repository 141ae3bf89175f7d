"""The kit in its three ways, each in a process of its own, on a good adapter and on a broken one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from mmcore.cli import main
from mmcore.errors import ConfigError
from mmcore.testing.conformance import AdapterConformance

TESTS = Path(__file__).parents[1]
BROKEN = "pieces_place_each_row_once"
RESTING = "ranges_use_each_row_once"
HELD = "manifest_is_light"

MANIFEST = """
from mmcore import AdapterInfo, hookimpl

@hookimpl
def mmcore_register_adapters():
    return [
        AdapterInfo(name=name, target=f"parts:{name.upper()}", architectures=(name,), testing=f"parts:{name}")
        for name in ("good", "worse")
    ]
"""
PARTS = """
from dataclasses import replace
from types import SimpleNamespace

from mmcore_qwen2vl.adapter import Qwen2VLAdapter
from mmcore_qwen2vl.conformance import FAMILY
from testing.broken.processors import PlaceholderBetween
from testing.broken.record import worse_part

plain = Qwen2VLAdapter.from_config
broken = worse_part("inputs", PlaceholderBetween)
GOOD = Qwen2VLAdapter
WORSE = SimpleNamespace(from_config=lambda config, files: broken(plain(config, files)))
good = replace(FAMILY, adapter="good", cases=FAMILY.cases[:1])
worse = replace(good, adapter="worse")
"""
CLASSES = f"""
from mmcore.testing.conformance import AdapterConformance

class TestWorse(AdapterConformance):
    adapter = "worse"

class TestKnown(AdapterConformance):
    adapter = "worse"
    expected_failures = {{"{BROKEN}": "known since 1.2"}}

class TestMended(AdapterConformance):
    adapter = "good"
    expected_failures = {{"{BROKEN}": "known since 1.2"}}

class TestNobody(AdapterConformance):
    adapter = "nobody"
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a distribution of two adapters, ``good`` and ``worse``, as pip would leave it."""
    folder = tmp_path_factory.mktemp("site")
    info = folder / "mmcore_plugin_pair-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mmcore-plugin-pair\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[mmcore]\npair = pair\n")
    (folder / "pair.py").write_text(MANIFEST)
    (folder / "parts.py").write_text(PARTS)
    return folder


def run(site: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """In a folder where nothing is but what the test put there."""
    work = site / "work"
    work.mkdir(exist_ok=True)
    paths = os.pathsep.join([str(site), str(TESTS)])
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=work,
        env={**own, "PYTHONPATH": paths, **environ},
        capture_output=True,
        text=True,
        timeout=300,
    )


def run_pytest(site: Path, *arguments: str) -> tuple[int, Mapping[str, str], str]:
    """The exit code, the outcome of each test by its name, and all that was printed."""
    shown = run(site, "pytest", "-v", "-rfEs", "-W", "error", "-p", "no:cacheprovider", *arguments)
    alone = re.findall(r"(Test\w+::\S+)(?: <- \S+)? (PASSED|FAILED|XFAIL|SKIPPED)", shown.stdout)
    spread = re.findall(r"(PASSED|FAILED) \S+::(Test\w+::\S+)", shown.stdout)
    found = dict(alone) | {name: outcome for outcome, name in spread}
    return shown.returncode, found, shown.stdout + shown.stderr


# ------------------------------------------------------------------ three lines of tests


def test_a_class_of_three_lines(site: Path) -> None:
    """Of a fault that is listed, and of one that is mended though it is listed still."""
    (site / "test_pair.py").write_text(CLASSES)
    names = (HELD, BROKEN, RESTING)
    options = ("--continue-on-collection-errors", "--mmcore-profile=quick", "-k", " or ".join(names))
    code, outcomes, shown = run_pytest(site, str(site / "test_pair.py"), *options)
    found = {
        kind: [outcomes[f"{kind}::test_{law}[2]"] for law in names]
        for kind in ("TestWorse", "TestKnown", "TestMended")
    }
    assert code == 1, shown
    assert found == {
        "TestWorse": ["PASSED", "FAILED", "SKIPPED"],
        "TestKnown": ["PASSED", "XFAIL", "SKIPPED"],
        "TestMended": ["PASSED", "FAILED", "SKIPPED"],
    }
    assert "[XPASS(strict)] known since 1.2" in shown
    assert f"not run: rests on {BROKEN}" in shown
    assert f"read  docs/laws.md#{BROKEN.replace('_', '-')}" in shown
    assert "\nno installed adapter is called 'nobody'" in shown


def test_a_failure_expected_of_no_law_or_case_is_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'manifest_is_light'"):
        type("TestX", (AdapterConformance,), {"adapter": "qwen2vl", "expected_failures": {"manifest": "old"}})

    class Unknown(AdapterConformance):
        adapter = "qwen2vl"
        expected_failures = MappingProxyType({f"{HELD}[9]": "old"})

    with pytest.raises(ConfigError, match=r"'manifest_is_light\[9\]' names no case of 'qwen2vl'"):
        Unknown.found()


# ------------------------------------------------------------------ pytest --mmcore-adapter


def test_an_option_of_pytest_with_no_test_file(site: Path) -> None:
    laws = f"{HELD} or {BROKEN}"
    code, found, shown = run_pytest(site, "--mmcore-adapter=good", "--mmcore-profile=quick", "-k", laws)
    assert code == 0, shown
    assert set(found.values()) == {"PASSED"}
    assert len(found) == 2


def test_the_option_in_two_processes(site: Path) -> None:
    laws = f"{HELD} or {BROKEN}"
    options = ("--mmcore-adapter=worse", "--mmcore-profile=quick", "-p", "xdist", "-n", "2", "-k", laws)
    code, found, shown = run_pytest(site, *options)
    assert code == 1, shown
    assert found[f"TestLaws::test_{HELD}[2]"] == "PASSED"
    assert found[f"TestLaws::test_{BROKEN}[2]"] == "FAILED"


def test_an_option_that_names_nothing_is_a_usage_error(site: Path) -> None:
    code, _, shown = run_pytest(site, "--mmcore-adapter=nobody")
    assert (code, "ERROR: no installed adapter is called 'nobody'; there are: " in shown) == (4, True), shown
    code, _, shown = run_pytest(site, "--mmcore-adapter=good", "--mmcore-checkpoint=.")
    assert (code, "has no config.json" in shown) == (4, True), shown
    code, _, shown = run_pytest(site, "--mmcore-checkpoint=.")
    assert (code, "--mmcore-checkpoint needs --mmcore-adapter NAME" in shown) == (4, True), shown


# ------------------------------------------------------------------ mmcore conformance


def test_the_command_tells_what_is_broken(site: Path) -> None:
    """In 80 columns: the law, the smallest example, what happened, what to read; and what rests on it."""
    laws = [option for law in (HELD, BROKEN, RESTING) for option in ("--law", law)]
    shown = run(site, "mmcore", "conformance", "worse", *laws, COLUMNS="80")
    assert shown.returncode == 1, shown.stderr
    assert shown.stdout.splitlines()[:8] == [
        f"held     {HELD}",
        f"broken   {BROKEN}",
        "         on    2",
        "         The pieces of a plan hold its rows, none of them empty, and between",
        "         them ordinary tokens.",
        "         with  items = [Picture(width=1, height=1, seed=0)]",
        "         says  a placeholder's id stands among the tokens between rows",
        f"         read  docs/laws.md#{BROKEN.replace('_', '-')}",
    ]
    assert f"not run  {RESTING}: rests on {BROKEN}" in shown.stdout
    assert "worse: 3 laws on 1 checkpoint: 1 held, 1 not run, 1 broken" in shown.stdout


def test_the_command_in_json(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    laws = ["--law", HELD, "--law", "strange-options-are-refused"]
    assert main(["conformance", "qwen2vl", "--profile=quick", "--json", *laws]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["adapter"], found["profile"], found["conforms"]) == ("qwen2vl", "quick", True)
    assert [verdict["law"] for verdict in found["verdicts"]][::3] == [HELD, "strange_options_are_refused"]
    assert {verdict["checkpoint"] for verdict in found["verdicts"]} == {"2", "2.5", "2.5 nested"}


@pytest.mark.parametrize(
    ("arguments", "code", "cure"),
    [
        (["nobody"], 1, "no installed adapter is called 'nobody'; there are: "),
        (
            ["qwen2vl", "--law", "manifest"],
            2,
            "there is no law 'manifest'; did you mean 'manifest_is_light'?",
        ),
        (["qwen2vl", "--checkpoint", "nowhere"], 1, "nowhere is not a folder with a model"),
    ],
)
def test_what_is_not_there_is_told_with_its_cure(
    arguments: list[str], code: int, cure: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["conformance", *arguments]) == code
    assert cure in capsys.readouterr().err


WITHOUT_HYPOTHESIS = """
import sys
from importlib.machinery import PathFinder

class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name == "hypothesis" else PathFinder.find_spec(name, path, target)

sys.meta_path = [Finder if finder is PathFinder else finder for finder in sys.meta_path]
from mmcore.cli import main
sys.exit(main(["conformance", "qwen2vl"]))
"""


def test_a_missing_extra_is_told_with_its_command() -> None:
    shown = subprocess.run([sys.executable, "-c", WITHOUT_HYPOTHESIS], capture_output=True, text=True)
    assert shown.returncode == 2
    assert shown.stderr == (
        "error: the conformance kit needs hypothesis: pip install 'mmcore-runtime[testing]'\n"
    )
