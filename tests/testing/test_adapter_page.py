"""docs/writing-an-adapter.md: its blocks are a package, which keeps every law; its faults are found."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from mmcore.cli import main
from mmcore.testing.laws import LAWS
from mmcore.testing.tiny import fan_in_weights, save_checkpoint

PAGE = (Path(__file__).parents[2] / "docs" / "writing-an-adapter.md").read_text(encoding="utf-8")
NAME, MODULE = "deepseek-vl", "mmcore_deepseek_vl"
FAMILY = tuple(f"{MODULE}/{name}.py" for name in ("__init__", "adapter", "encoder"))
MOST_LINES = 100
ROW = re.compile(r"^\| `(\w+\.py)` \| `(.+?)` \| (?:`(.+?)` )?\| ([a-z -]+) \|$", re.MULTILINE)
"""Of the table of faults: file, what stands there, what to write, the law."""


def package() -> dict[str, str]:
    """Text by path. A heading names the file that the blocks below it, up to the next such one, make up."""
    _, *parts = re.split(r"^## [^`\n]*`([\w./-]+)`$", PAGE, flags=re.MULTILINE)
    found = {}
    for path, body in zip(parts[::2], parts[1::2], strict=True):
        own = re.split(r"^## ", body, flags=re.MULTILINE)[0]
        blocks = re.findall(r"^```(?:python|toml)\n(.*?)^```$", own, re.MULTILINE | re.DOTALL)
        found[path] = "\n\n".join(blocks)
    return found


def install(texts: Mapping[str, str], site: Path) -> Path:
    """As pip leaves it: the modules, and a folder that tells of the distribution and its entry points."""
    project = tomllib.loads(texts["pyproject.toml"])["project"]
    points = "".join(f"{name} = {value}\n" for name, value in project["entry-points"]["mmcore"].items())
    info = f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    told = {f"{info}/METADATA": metadata, f"{info}/entry_points.txt": f"[mmcore]\n{points}"}
    for path, text in {**texts, **told}.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text, encoding="utf-8")
    return site


def run(site: Path, *command: object) -> str:
    """In a process of its own."""
    environ = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, env=environ, cwd=site, timeout=900
    )
    assert result.stdout, result.stderr
    return result.stdout


def verdicts(site: Path, *options: object) -> list[dict[str, Any]]:
    """Of `mmcore conformance`."""
    mmcore = Path(sys.executable).parent / "mmcore"
    report = run(site, mmcore, "conformance", NAME, "--json", "--profile", "quick", *options)
    found: list[dict[str, Any]] = json.loads(report)["verdicts"]
    return found


def code_lines(source: str) -> int:
    """Without blanks, comments and docstrings."""
    docstrings = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    layout = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in (*layout, tokenize.ENDMARKER)
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(lines - docstrings)


def test_the_command_on_the_page_writes_what_the_page_shows(tmp_path: Path) -> None:
    (command,) = re.findall(r"^mmcore (new-adapter \S.*--architecture .*)$", PAGE, re.MULTILINE)
    assert main([*command.split(), "--into", str(tmp_path)]) == 0
    (folder,) = tmp_path.iterdir()
    code = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.py")}
    assert package().keys() == {"pyproject.toml", *code}
    for path, text in package().items():
        assert text == (folder / path).read_text(encoding="utf-8"), f"{path} is not what the command writes"


def test_the_family_is_small() -> None:
    counts = {path: code_lines(package()[path]) for path in FAMILY}
    assert sum(counts.values()) <= MOST_LINES, counts


def test_lines_are_counted_without_what_is_no_code() -> None:
    source = '"""Doc."""\n\n# comment\nX = (\n    1,\n)  # why\n"""Of X."""\n\n\nclass A:\n    """Doc."""\n'
    assert code_lines(source) == 4


def test_the_package_keeps_every_law_and_equals_the_reference(tmp_path: Path) -> None:
    found = verdicts(install(package(), tmp_path))
    assert [verdict["law"] for verdict in found] == [law.name for law in LAWS]
    assert {verdict["verdict"] for verdict in found} == {"held"}
    spoke = {verdict["law"] for verdict in found if not verdict["reason"]}
    assert spoke >= {"answers_equal_the_reference", "preprocess_equals_the_published_processor"}


def test_a_head_that_the_file_holds_is_taken(tmp_path: Path) -> None:
    """By `--checkpoint`: the same model, saved with a head that is not its embedding."""
    site, folder = install(package(), tmp_path / "site"), tmp_path / "untied"
    writing = f"from pathlib import Path; from {MODULE}.conformance import write_tiny"
    run(site, sys.executable, "-c", f"{writing}; print(write_tiny(Path({str(folder)!r})))")
    weights = load_file(folder / "model.safetensors")
    head = fan_in_weights({"lm_head.weight": weights["model.language_model.embed_tokens.weight"].shape}, 1)
    config = json.loads((folder / "config.json").read_text())
    save_checkpoint(folder, weights | head, {"config.json": {**config, "tie_word_embeddings": False}})
    laws = ("every_tensor_has_one_place", "answers_equal_the_reference")
    asked = [option for law in laws for option in ("--law", law)]
    found = verdicts(site, "--checkpoint", folder, *asked)
    assert {verdict["law"]: verdict["verdict"] for verdict in found} == dict.fromkeys(laws, "held")


def test_each_fault_on_the_page_can_be_made() -> None:
    assert len(ROW.findall(PAGE)) >= 5
    for file, good, _, law in ROW.findall(PAGE):
        assert package()[f"{MODULE}/{file}"].count(good) == 1
        assert law.replace(" ", "_") in {one.name for one in LAWS}


@pytest.mark.slow
@pytest.mark.parametrize(("file", "good", "bad", "law"), ROW.findall(PAGE))
def test_a_fault_is_found_first_by_the_law_beside_it(
    file: str, good: str, bad: str, law: str, tmp_path: Path
) -> None:
    texts = package()
    texts[f"{MODULE}/{file}"] = texts[f"{MODULE}/{file}"].replace(good, bad)
    broken = [one["law"] for one in verdicts(install(texts, tmp_path)) if one["verdict"] == "broken"]
    assert broken[:1] == [law.replace(" ", "_")]
