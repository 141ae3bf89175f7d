"""How laws are tried: the smallest example, what rests on what, and faults that are expected."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import strategies as st

from mmcore.manifest import AdapterInfo
from mmcore.testing.law import Law, law
from mmcore.testing.laws import LAWS
from mmcore.testing.subject import Subject
from mmcore.testing.trial import Profile, Trial, try_law, try_laws

INFO = AdapterInfo(name="toy", target="toy:Toy", architectures=("Toy",))
SUBJECT = cast(Subject, SimpleNamespace(info=INFO, case=SimpleNamespace(name="toy")))
MANY = Profile("many", 200)


def made(name: str, check: Callable[[], None] = lambda: None, **options: Any) -> Law:
    def run(subject: Subject) -> None:
        """It holds."""
        check()

    run.__name__ = name
    return law(**options)(run)


def fails() -> None:
    raise ValueError("no")


@law(number=lambda s: st.integers(0, 10_000), text=lambda s: st.text("abc", max_size=50))
def small_numbers_only(subject: Subject, number: int, text: str) -> None:
    """Numbers are under 137."""
    assert number < 137


def test_the_example_is_the_smallest() -> None:
    verdict = try_law(SUBJECT, small_numbers_only, MANY)
    assert verdict.outcome == "broken"
    assert verdict.example == {"number": "137", "text": "''"}


def test_without_shrinking_an_example_breaks_it_all_the_same() -> None:
    verdict = try_law(SUBJECT, small_numbers_only, Profile("first", 200, shrinks=False))
    assert verdict.example is not None
    assert int(verdict.example["number"]) >= 137


def test_a_law_that_holds_has_neither_error_nor_example() -> None:
    verdict = try_law(SUBJECT, made("holds"))
    assert (verdict.outcome, verdict.error, verdict.example) == ("held", None, None)


def test_what_rests_on_a_broken_law_is_not_run() -> None:
    """And what rests on that is not run either; others are."""
    ran: list[str] = []
    laws = [
        made("first", fails),
        made("second", lambda: ran.append("second"), needs=("first",)),
        made("third", lambda: ran.append("third"), needs=("second",)),
        made("other", lambda: ran.append("other")),
    ]
    verdicts = list(try_laws(SUBJECT, laws))
    assert [verdict.outcome for verdict in verdicts] == ["broken", "not run", "not run", "held"]
    assert [verdict.reason for verdict in verdicts] == ["", "rests on first", "rests on first", ""]
    assert ran == ["other"]


def test_a_law_tried_alone_names_the_broken_one_that_it_rests_on() -> None:
    """As `--law` does, and a run of tests that is spread over processes."""
    laws = [made("first", fails), made("second", needs=("first",)), made("third", fails, needs=("second",))]
    verdict = Trial(SUBJECT, laws=laws).verdict(laws[2])
    assert (verdict.outcome, verdict.reason) == (
        "broken",
        "rests on first, which is broken too: mend that first",
    )


def test_what_rests_on_a_law_known_to_fail_is_not_run() -> None:
    laws = [made("first", fails), made("second", needs=("first",)), made("third", needs=("second",))]
    trial = Trial(SUBJECT, laws=laws, failing=["first"])
    assert [trial.verdict(one).outcome for one in laws] == ["broken", "not run", "not run"]


def test_a_law_that_says_nothing_to_a_family_holds() -> None:
    assert try_law(SUBJECT, made("of others", fails, applies=lambda subject: False)).outcome == "held"


def test_an_expected_fault_is_expected_and_what_rests_on_it_is_not_run() -> None:
    laws = [made("first", fails), made("second", needs=("first",))]
    verdicts = list(try_laws(SUBJECT, laws, expected={"first": "known since 1.2"}))
    assert [verdict.outcome for verdict in verdicts] == ["expected", "not run"]
    assert verdicts[0].reason == "known since 1.2"


def test_a_law_that_is_expected_to_break_and_holds_is_broken() -> None:
    (verdict,) = try_laws(SUBJECT, [made("first")], expected={"first": "known since 1.2"})
    assert verdict.outcome == "broken"
    assert "holds, though it is listed as broken: known since 1.2" in str(verdict.error)


def test_the_same_examples_are_drawn_each_time() -> None:
    drawn: list[list[int]] = [[], []]

    def recording(into: list[int]) -> Law:
        @law(number=lambda s: st.integers())
        def any_number(subject: Subject, number: int) -> None:
            """Any."""
            into.append(number)

        return any_number

    for into in drawn:
        try_law(SUBJECT, recording(into))
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) >= 20


# ------------------------------------------------------------------ the laws themselves


@pytest.mark.parametrize("one", LAWS, ids=lambda one: one.name)
def test_a_law_stands_behind_what_it_rests_on(one: Law) -> None:
    names = [other.name for other in LAWS]
    assert names.count(one.name) == 1
    assert all(names.index(needed) < names.index(one.name) for needed in one.needs)


@pytest.mark.parametrize("one", LAWS, ids=lambda one: one.name)
def test_a_law_says_what_it_promises_in_one_sentence(one: Law) -> None:
    assert one.about.endswith(".")
