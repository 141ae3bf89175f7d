"""``mmcore doctor``: one thing is broken at a time, and the command that mends it is named."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
from mmcore_qwen2vl.testing import write_tiny_checkpoint

from mmcore.cli import main
from mmcore.cli.doctor import report
from mmcore.cli.doctor_system import Requirement, check_packages, read_requirement
from mmcore.cli.finding import Finding
from mmcore.kernels.dispatch import explain, operations

Break = Callable[[Path], object]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def model(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "model"))


@pytest.fixture(autouse=True)
def _caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the machine say nothing about the command."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    for name in ("HF_HOME", "HF_HUB_CACHE", "TRITON_CACHE_DIR", "TRITON_HOME", "MMCORE_DISABLE_PLUGINS"):
        monkeypatch.delenv(name, raising=False)


def examined(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[Finding]]:
    code = main(["doctor", "--json", *arguments])
    found = json.loads(capsys.readouterr().out)
    findings = [Finding(**finding) for finding in found["findings"]]
    assert found["healthy"] == (code == 0) == all(f.status != "broken" for f in findings)
    return code, findings


def the_broken(findings: list[Finding]) -> Finding:
    (broken,) = [finding for finding in findings if finding.status == "broken"]
    return broken


# ------------------------------------------------------------------ all is well


def test_a_whole_machine_and_model(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, findings = examined(capsys, str(model))
    assert code == 0, findings
    there = {finding.what: finding for finding in findings}
    assert {"mmcore", "packages", "cache", "hub cache", "adapter", "tokenizer", "weights"} <= set(there)
    assert "'qwen2vl'" in there["adapter"].detail
    kernels = [finding for finding in findings if finding.what.startswith("kernels ")]
    assert any("paged_attention" in f.detail and "(" in f.detail for f in kernels)
    assert not (model.parent / "caches").exists(), "looking has made something"


# ------------------------------------------------------------------ the model


def cut(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-10])


def pointer(folder: Path) -> None:
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\n")


def unknown(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"architectures": ["Blip2ForConditionalGeneration"]}))


def index_of_absent(folder: Path) -> None:
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def split_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text("{}")


@pytest.mark.parametrize(
    ("break_it", "what", "cure"),
    [
        (lambda f: (f / "config.json").unlink(), "config.json", "hf download OWNER/MODEL config.json"),
        (lambda f: (f / "config.json").write_text("{"), "config.json", "hf download OWNER/MODEL config.json"),
        (lambda f: (f / "tokenizer.json").unlink(), "tokenizer", "hf download OWNER/MODEL tokenizer.json"),
        (split_tokenizer, "tokenizer", "AutoTokenizer"),
        (lambda f: (f / "model.safetensors").unlink(), "weights", "--include '*.safetensors'"),
        (cut, "weights", "hf download OWNER/MODEL model.safetensors"),
        (pointer, "weights", "lfs pull"),
        (index_of_absent, "weights", "hf download OWNER/MODEL"),
        (unknown, "adapter", "pip install mmcore-plugin-blip2"),
        (lambda f: f.rename(f.with_name("gone")), "model", "hf download OWNER/MODEL --local-dir"),
    ],
)
def test_a_broken_model(
    model: Path, break_it: Break, what: str, cure: str, capsys: pytest.CaptureFixture[str]
) -> None:
    break_it(model)
    code, findings = examined(capsys, str(model))
    broken = the_broken(findings)
    assert (code, broken.what) == (1, what)
    assert cure in broken.cure
    assert broken.detail


# ------------------------------------------------------------------ the machine


def install(folder: Path, name: str, source: str) -> None:
    info = folder / f"fake_{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: fake-{name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[mmcore]\n{name} = fake_{name}\n")
    (folder / f"fake_{name}.py").write_text(source)


def test_a_plugin_that_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, "dud", "raise RuntimeError('out of order')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert "broken   plugin 'dud' (fake-dud 1.0): did not load:" in shown
    assert "out of order" in shown
    assert "mend: pip install -U fake-dud, or pip uninstall fake-dud" in shown
    assert "\x1b" not in shown, "colours without a terminal"
    assert "1 broken" in shown.splitlines()[-1]


@pytest.mark.parametrize(
    ("absent", "extra", "status"), [("av", "media", "warning"), ("huggingface_hub", "hub", "warning")]
)
def test_a_missing_extra(absent: str, extra: str, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, absent)
    (found,) = [finding for finding in check_packages() if finding.status != "ok"]
    assert (found.what, found.status) == (f"extra '{extra}'", status)
    assert found.cure == f"pip install 'mmcore-runtime[{extra}]'"


def test_a_missing_or_old_package(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "tokenizers")
    found = the_broken(list(check_packages()))
    assert ("tokenizers is not installed" in found.detail, found.cure) == (
        True,
        "pip install -U 'tokenizers'",
    )
    hide(monkeypatch, "", versions={"torch": "2.3.1+cu121"})
    found = the_broken(list(check_packages()))
    assert (found.detail, found.cure) == ("torch is 2.3.1+cu121, needs 2.11", "pip install -U 'torch'")


def hide(monkeypatch: pytest.MonkeyPatch, absent: str, versions: dict[str, str] | None = None) -> None:
    """As `importlib.metadata` would see another installation."""
    lines = [
        "torch>=2.11",
        "tokenizers>=0.21",
        "triton>=3.6; sys_platform == 'win98'",
        "av>=14; extra == 'media'",
        'huggingface_hub>=0.26; extra == "hub"',
        "mypy>=1; extra == 'dev'",
        "mmcore-runtime[hub,media]; extra == 'dev'",
    ]

    def version(name: str) -> str:
        if name == absent:
            raise metadata.PackageNotFoundError(name)
        return (versions or {}).get(name, "99.0")

    monkeypatch.setattr(metadata, "requires", lambda name: lines)
    monkeypatch.setattr(metadata, "version", version)


def test_requirements_as_build_tools_write_them() -> None:
    assert read_requirement("safetensors>=0.4.5") == Requirement("safetensors", "0.4.5", "")
    assert read_requirement("fastapi[standard]>=0.1,<2; extra == 'hub'") == Requirement(
        "fastapi", "0.1", "hub"
    )
    assert read_requirement("pluggy") == Requirement("pluggy", "", "")
    assert read_requirement("mypy>=1; extra == 'dev'") is None
    assert read_requirement("winapi; sys_platform == 'win98'") is None


def test_mmcore_runs_uninstalled(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", requires)
    assert [(f.status, f.cure) for f in check_packages()] == [("ok", ""), ("warning", "pip install -e .")]


@pytest.mark.parametrize(
    ("variable", "what"),
    [
        ("XDG_CACHE_HOME", "cache"),
        ("TRITON_CACHE_DIR", "kernel cache"),
        ("HF_HOME", "hub cache"),
        ("TMPDIR", "temporary files"),
    ],
)
def test_no_write_access(
    variable: str,
    what: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The folder lies under a file, where nobody, not even root, can write."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv(variable, str(tmp_path / "file" / "cache"))
    code, findings = examined(capsys)
    broken = the_broken(findings)
    assert (code, broken.what) == (1, what)
    assert f"export {variable}=FOLDER" in broken.cure
    assert str(tmp_path / "file") in broken.cure


def test_a_read_only_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Root may write everywhere, so the system's answer is put in its mouth."""
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != locked and access(path, mode))
    monkeypatch.setenv("XDG_CACHE_HOME", str(locked))
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert the_broken(examined(capsys)[1]).cure.startswith(f"chmod u+rwx {locked}")


# ------------------------------------------------------------------ the report


def test_the_report_fits_and_leaves_commands_whole() -> None:
    long = Finding("thing", "broken", "word " * 30, "pip install " + "x" * 60)
    for width in (20, 40, 80):
        lines = list(report([long], width, coloured=False))
        assert all(len(line) <= max(width, 29) for line in lines if "mend: " not in line)
        assert f"         mend: {long.cure}" in lines
    assert "\x1b[31mbroken" in next(report([long], 80, coloured=True))
    assert list(report([Finding("thing", "ok", "fine")], 80, coloured=False))[-1] == "all is well"


def test_why_a_kernel_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert (explain(True).implementation, explain(False).implementation) == ("triton", "torch")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert explain(False).implementation == "triton"
    found = dict(operations())
    assert found["paged_attention"]
    assert not found["copy_blocks"]
    assert "dispatch" not in found
