"""Laws tried on a subject: each generates its examples, shrinks what breaks it, and gets a verdict."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

from hypothesis import HealthCheck, Phase, given, settings

from mmcore.testing.law import Law, grounds
from mmcore.testing.laws import LAWS
from mmcore.testing.place import place_of
from mmcore.testing.subject import Subject

Outcome = Literal["held", "broken", "not run", "expected"]


@dataclass(frozen=True, slots=True)
class Profile:
    """How many examples a law of cost 1 is tried on."""

    name: str
    examples: int
    shrinks: bool = True
    """Look for the smallest values that break a law; the first that are found do where nobody reads them."""

    def count(self, law: Law) -> int:
        return max(3, round(self.examples / law.cost))


QUICK = Profile("quick", 4)
DEFAULT = Profile("default", 20)
THOROUGH = Profile("thorough", 400)
PROFILES: Mapping[str, Profile] = MappingProxyType({one.name: one for one in (QUICK, DEFAULT, THOROUGH)})

SILENT = "has nothing to say here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of one law on one case."""

    law: Law
    case: str
    outcome: Outcome
    seconds: float = 0.0
    error: BaseException | None = None
    place: str = ""
    """The line of the adapter's package where the error arose, where it did there."""
    example: Mapping[str, str] | None = None
    """The smallest values that break it, by parameter."""
    reason: str = ""
    """Which broken law it rests on, why it was expected to break, or that it holds by saying nothing."""


class Trial:
    """Laws tried one after the other on a subject; what rests on a broken one is not run."""

    def __init__(
        self,
        subject: Subject,
        profile: Profile = DEFAULT,
        laws: Sequence[Law] = LAWS,
        failing: Iterable[str] = (),
    ) -> None:
        """Of all ``laws`` some may be tried elsewhere, or not at all; ``failing`` are known to be broken."""
        self.subject = subject
        self.profile = profile
        self._laws = laws
        self._tried: set[str] = set()
        self._failed = set(failing)

    def verdict(self, law: Law, expected: str | None = None) -> Verdict:
        """With a reason why it is ``expected`` to break, it must: else it is ``broken`` all the same."""
        ground = next((one for one in grounds(law, self._laws) if one.name in self._failed), None)
        if ground is not None:
            case, reason = self.subject.case.name, f"rests on {ground.name}"
            return Verdict(law=law, case=case, outcome="not run", reason=reason)
        verdict = self._try(law)
        if verdict.outcome == "broken" and expected is None:
            verdict = replace(verdict, reason=self._deeper(law))
        return _judged(verdict, expected)

    def _try(self, law: Law) -> Verdict:
        verdict = try_law(self.subject, law, self.profile)
        self._tried.add(law.name)
        if verdict.outcome == "broken":
            self._failed.add(law.name)
        return verdict

    def _deeper(self, law: Law) -> str:
        """What else is broken, where not all that a broken law rests on was tried before it."""
        for ground in grounds(law, self._laws):
            if ground.name not in self._tried and self._try(ground).outcome == "broken":
                return f"rests on {ground.name}, which is broken too: mend that first"
        return ""


def try_laws(
    subject: Subject,
    laws: Sequence[Law],
    profile: Profile = DEFAULT,
    expected: Mapping[str, str] | None = None,
) -> Iterator[Verdict]:
    """A verdict for each law, in order. Laws that rest on a broken one are not run.

    ``expected`` holds reasons by law: such a law must break, else its verdict is ``broken`` all the same.
    """
    trial = Trial(subject, profile, laws)
    for law in laws:
        yield trial.verdict(law, (expected or {}).get(law.name))


def try_law(subject: Subject, law: Law, profile: Profile = DEFAULT) -> Verdict:
    """One law by itself."""
    __tracebackhide__ = True  # as in all that lies between pytest and a law
    started = time.monotonic()
    last: dict[str, Any] = {}
    error: BaseException | None = None
    applies = True
    try:
        applies = law.applies(subject)
        if applies:
            _run(subject, law, profile, last)
    except Exception as found:
        error = found
    return Verdict(
        law=law,
        case=subject.case.name,
        outcome="held" if error is None else "broken",
        seconds=time.monotonic() - started,
        error=error,
        place="" if error is None else place_of(error, subject.info),
        example=None if error is None else {name: repr(value) for name, value in last.items()},
        reason="" if applies else SILENT,
    )


def _run(subject: Subject, law: Law, profile: Profile, last: dict[str, Any]) -> None:
    """``last`` holds the values of the last run: of a broken law the smallest that break it."""
    __tracebackhide__ = True
    if not law.given:
        law.check(subject)
        return

    @settings(
        max_examples=profile.count(law),
        deadline=None,
        database=None,
        derandomize=True,
        report_multiple_bugs=False,
        print_blob=False,
        phases=(Phase.generate, Phase.shrink) if profile.shrinks else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(**{name: make(subject) for name, make in law.given.items()})
    def examples(**values: Any) -> None:
        __tracebackhide__ = True
        last.clear()
        last.update(values)
        law.check(subject, **values)

    examples()


def _judged(verdict: Verdict, expected: str | None) -> Verdict:
    if expected is None:
        return verdict
    if verdict.outcome == "broken":
        return Verdict(
            law=verdict.law, case=verdict.case, outcome="expected", seconds=verdict.seconds, reason=expected
        )
    unexpected = AssertionError(f"{verdict.law.name} holds, though it is listed as broken: {expected}")
    return Verdict(law=verdict.law, case=verdict.case, outcome="broken", error=unexpected)
