"""The laws as tests of pytest. A package that has an adapter needs three lines:

from mmcore.testing.conformance import AdapterConformance


class TestShapes(AdapterConformance):
    adapter = "shapes"
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, ClassVar

import pytest

from mmcore.errors import ConfigError, MMCoreError
from mmcore.manifest import AdapterInfo
from mmcore.plugins import load_plugins
from mmcore.testing.family import Case, Family
from mmcore.testing.law import Law
from mmcore.testing.laws import LAWS
from mmcore.testing.lookup import find_family, find_laws, open_case
from mmcore.testing.report import fault_lines
from mmcore.testing.trial import PROFILES, Trial

WIDTH = 96
"""Columns of a fault's words, behind the margin that pytest puts before them."""


class LawBroken(AssertionError):
    """A law does not hold. Its traceback is that of what happened inside."""


class AdapterConformance:
    """A subclass gets a test for each law, of its own, on each case of the adapter's family.

    ``expected_failures`` gives reasons by law, or by ``"law[case]"``: strict, so that a law which holds again
    is told. Laws that rest on a broken one are skipped, as not run.
    """

    adapter: ClassVar[str]
    """Its name in the manifest."""
    checkpoint: ClassVar[Path | None] = None
    """A real model in place of the family's tiny ones."""
    expected_failures: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def __init_subclass__(cls, **options: Any) -> None:
        """Raises `ConfigError` where a failure is expected of a law that does not exist."""
        super().__init_subclass__(**options)
        find_laws(name.partition("[")[0] for name in cls.expected_failures)
        for law in LAWS:
            setattr(cls, f"test_{law.name}", _test_of(law))

    @classmethod
    @cache
    def found(cls) -> tuple[AdapterInfo, Family]:
        """What it is about. Raises `PluginError`, `CheckpointError`."""
        info, family = find_family(load_plugins(), cls.adapter, cls.checkpoint)
        places = {
            name for case in family.cases for law in LAWS for name in (law.name, f"{law.name}[{case.name}]")
        }
        for name in sorted(set(cls.expected_failures) - places):
            raise ConfigError(
                f"expected_failures of {cls.__name__}: {name!r} names no case of {cls.adapter!r}"
            )
        return info, family

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Each case; those of a listed failure must fail. Raises `CollectError`."""
        try:
            _, family = self.found()
        except MMCoreError as error:
            raise pytest.Collector.CollectError(str(error)) from error
        law = metafunc.function.__name__.removeprefix("test_")
        reasons = {case.name: self._expected(law, case) for case in family.cases}
        marks = {
            name: () if reason is None else pytest.mark.xfail(reason=reason, strict=True, raises=LawBroken)
            for name, reason in reasons.items()
        }
        cases = [pytest.param(case, id=case.name, marks=marks[case.name]) for case in family.cases]
        metafunc.parametrize("mmcore_trial", cases, indirect=True, scope="class")

    @classmethod
    def _expected(cls, law: str, case: Case) -> str | None:
        """The reason."""
        reasons = cls.expected_failures
        return reasons.get(f"{law}[{case.name}]", reasons.get(law))

    @classmethod
    @contextmanager
    def opened(cls, case: Case, folder: Path, profile: str, worker: Executor) -> Iterator[Trial]:
        """A trial of one case, whose checkpoint goes into ``folder``."""
        info, family = cls.found()
        failing = [law.name for law in LAWS if cls._expected(law.name, case) is not None]
        with open_case(info, family, case, folder, worker) as subject:
            yield Trial(subject, PROFILES[profile], failing=failing)


def _test_of(law: Law) -> Callable[..., None]:
    """A function of its own for each subclass, so that no two share what a runner notes about it."""

    def test(self: Any, mmcore_trial: Trial) -> None:
        __tracebackhide__ = True
        verdict = mmcore_trial.verdict(law)
        if verdict.outcome == "not run":
            pytest.skip(f"not run: {verdict.reason}")
        if verdict.error is not None:
            told = "\n".join((law.name, *fault_lines(verdict, WIDTH)))
            raise LawBroken(told).with_traceback(_inside(law, verdict.error.__traceback__)) from None

    test.__name__ = f"test_{law.name}"
    test.__doc__ = law.about
    return test


def _inside(law: Law, trace: TracebackType | None) -> TracebackType | None:
    """From the law on: what called it tells nobody anything. All of it where it was not reached."""
    found = trace
    while found is not None and found.tb_frame.f_code is not law.check.__code__:
        found = found.tb_next
    return found or trace
