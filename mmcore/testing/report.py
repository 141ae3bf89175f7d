"""Verdicts in words, for a terminal of any width, and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from mmcore.testing.law import Law
from mmcore.testing.trial import SILENT, Outcome, Verdict

WORST: tuple[Outcome, ...] = ("broken", "not run", "expected", "held")
COLOURS: Mapping[Outcome, str] = MappingProxyType(
    {"held": "32", "expected": "33", "not run": "33", "broken": "31"}
)
LABEL = 9
"""Columns of the outcome and the blank behind it."""
LEAST = 20
"""No column of words is narrower, however narrow the terminal."""


def worst(verdicts: Sequence[Verdict]) -> Outcome:
    outcomes = {verdict.outcome for verdict in verdicts}
    return next(outcome for outcome in WORST if outcome in outcomes)


def law_lines(law: Law, verdicts: Sequence[Verdict], width: int, coloured: bool) -> Iterator[str]:
    """What came of a law on all cases. Where it is broken: on which, by which values, and what to read."""
    outcome = worst(verdicts)
    label = outcome.ljust(LABEL)
    shown = f"\x1b[{COLOURS[outcome]}m{label}\x1b[0m" if coloured else label
    first, *rest = _wrapped(law.name + _remark(outcome, verdicts), width - LABEL)
    yield shown + first
    yield from (" " * LABEL + line for line in rest)
    if outcome == "broken":
        told = next(verdict for verdict in verdicts if verdict.outcome == "broken")
        on = f"on    {_cases(outcome, verdicts)}"
        for line in (*_wrapped(on, width - LABEL, 6), *fault_lines(told, width - LABEL)):
            yield " " * LABEL + line


def fault_lines(verdict: Verdict, width: int) -> Iterator[str]:
    """Of a broken law: what it promises, the smallest values that break it, what happened and where."""
    yield from _wrapped(verdict.law.about, width)
    for name, value in (verdict.example or {}).items():
        yield from _wrapped(f"with  {name} = {value}", width, 6)
    yield from _wrapped(f"says  {_words(verdict.error)}", width, 6)
    if verdict.place:
        yield from _wrapped(f"at    {verdict.place}", width, 6)
    if verdict.reason:
        yield from _wrapped(f"but   {verdict.reason}", width, 6)
    yield f"read  {verdict.law.page}"


def _words(error: BaseException | None) -> str:
    """What it says, without the values that pytest adds to an assertion's own words."""
    said = str(error).partition("\nassert ")[0]
    return said if isinstance(error, AssertionError) and said else f"{type(error).__name__}: {said}"


def summary(verdicts: Sequence[Verdict], seconds: float) -> str:
    """One sentence."""
    laws = len({verdict.law.name for verdict in verdicts})
    cases = len({verdict.case for verdict in verdicts})
    counts = {outcome: sum(one.outcome == outcome for one in verdicts) for outcome in WORST}
    found = ", ".join(f"{counts[outcome]} {outcome}" for outcome in reversed(WORST) if counts[outcome])
    return f"{_count(laws, 'law')} on {_count(cases, 'checkpoint')}: {found} ({seconds:.0f} s)"


def as_json(verdict: Verdict) -> dict[str, Any]:
    """One law on one case."""
    error = verdict.error
    return {
        "law": verdict.law.name,
        "checkpoint": verdict.case,
        "verdict": verdict.outcome,
        "seconds": round(verdict.seconds, 3),
        "promises": verdict.law.about,
        "read": verdict.law.page,
        "reason": verdict.reason,
        "example": dict(verdict.example) if verdict.example else None,
        "error": None
        if error is None
        else {"type": type(error).__name__, "message": _words(error), "at": verdict.place},
    }


def _remark(outcome: Outcome, verdicts: Sequence[Verdict]) -> str:
    if outcome in ("not run", "expected"):
        return f": {next(one.reason for one in verdicts if one.outcome == outcome)}"
    return f": {SILENT}" if all(verdict.reason == SILENT for verdict in verdicts) else ""


def _cases(outcome: Outcome, verdicts: Sequence[Verdict]) -> str:
    return ", ".join(verdict.case for verdict in verdicts if verdict.outcome == outcome)


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    """``text`` in lines, those after the first indented. Long words are cut: a terminal would do it worse."""
    lines = [
        part
        for line in text.strip().splitlines()
        for part in textwrap.wrap(
            line, max(width, LEAST) - indent, break_on_hyphens=False, break_long_words=True
        )
    ]
    first, *rest = lines or [""]
    return [first, *(" " * indent + line for line in rest)]
