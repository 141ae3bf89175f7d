"""Verdicts in words: nothing is wider than the terminal, colours only where they are asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mmcore.testing.laws import LAWS
from mmcore.testing.report import as_json, law_lines, summary
from mmcore.testing.trial import SILENT, Verdict

LAW = LAWS[0]
ERROR = AssertionError("the first picture has " + "many " * 30 + "x" * 200 + "\nassert 3 == 4")
BROKEN = Verdict(
    law=LAW,
    case="tiny",
    outcome="broken",
    error=ERROR,
    example={"ask": "Ask(parts=('a word', Picture(width=1, height=1, seed=0)))"},
    reason="rests on another",
)
HELD = Verdict(law=LAW, case="other", outcome="held")
NOT_RUN = Verdict(law=LAW, case="tiny", outcome="not run", reason="rests on another")


def test_the_author_s_own_line_is_told() -> None:
    placed = replace(BROKEN, place="adapter.py:45, in preprocess")
    assert "         at    adapter.py:45, in preprocess" in law_lines(LAW, [placed], 80, coloured=False)
    assert as_json(placed)["error"]["at"] == "adapter.py:45, in preprocess"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = list(law_lines(LAW, [HELD, BROKEN], width, coloured=False))
    assert max(map(len, lines)) <= width
    assert lines[0] == f"broken   {LAW.name}"
    assert lines[1] == "         on    tiny"
    assert lines[-1] == f"         read  {LAW.page}"
    assert not any("assert 3" in line for line in lines)
    assert "rests on another" in " ".join(line.strip() for line in lines)


def test_the_worst_case_is_the_law_s() -> None:
    assert next(law_lines(LAW, [HELD, NOT_RUN], 80, coloured=False)) == (
        f"not run  {LAW.name}: rests on another"
    )
    silent = Verdict(law=LAW, case="tiny", outcome="held", reason=SILENT)
    assert next(law_lines(LAW, [silent], 80, coloured=False)) == f"held     {LAW.name}: {SILENT}"
    assert next(law_lines(LAW, [silent, HELD], 80, coloured=False)) == f"held     {LAW.name}"


def test_colours_are_around_the_verdict_alone() -> None:
    assert next(law_lines(LAW, [HELD], 80, coloured=True)) == f"\x1b[32mheld     \x1b[0m{LAW.name}"


def test_the_summary_counts() -> None:
    assert (
        summary([HELD, BROKEN, NOT_RUN], 3.4) == "1 law on 2 checkpoints: 1 held, 1 not run, 1 broken (3 s)"
    )


def test_json_has_what_the_words_have() -> None:
    found = as_json(BROKEN)
    assert found["error"]["type"] == "AssertionError"
    assert found["error"]["message"].startswith("the first picture has many")
    assert (found["law"], found["verdict"], found["read"]) == (LAW.name, "broken", LAW.page)
    assert (found["example"], found["reason"]) == (BROKEN.example, "rests on another")
