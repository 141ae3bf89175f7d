"""The Python in the README runs as it is printed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_snippet_runs_and_prints(snippet: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(snippet, "README.md", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.strip()


def test_there_are_snippets() -> None:
    assert SNIPPETS


def test_the_two_commands_are_on_the_first_screen() -> None:
    first = README.splitlines()[:24]
    assert any(line.startswith("make demo") for line in first)
    assert any(line.startswith("make test") for line in first)


def test_each_link_leads_somewhere() -> None:
    for page in Path(__file__).parent.parent.glob("**/*.md"):
        if any(part.startswith(".") for part in page.relative_to(Path(__file__).parent.parent).parts):
            continue
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page}: {target}"


def test_the_table_of_extras_is_that_of_pyproject() -> None:
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|$", section("| extra |"), re.MULTILINE)
    written = {extra: re.findall(r"`([\w-]+)`", brings) for extra, brings in rows}
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))
    extras: dict[str, list[str]] = project["project"]["optional-dependencies"]
    assert written == {name: [part for one in parts for part in named(one)] for name, parts in extras.items()}


def section(head: str) -> str:
    """The table that begins so."""
    start = README.index(head)
    return README[start : README.index("\n\n", start) + 1]


def named(requirement: str) -> list[str]:
    """A requirement's package; of this one the extras that it asks for."""
    own = re.fullmatch(r"mmcore-runtime\[(.*)\]", requirement)
    return own[1].split(",") if own else re.findall(r"^[\w-]+", requirement)
