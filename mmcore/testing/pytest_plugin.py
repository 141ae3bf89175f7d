"""For pytest: ``--mmcore-adapter NAME`` tries the laws of an installed adapter, with no test file.

Every run of pytest imports this module where mmcore is installed, so it imports pytest alone, and without the
option nothing happens.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from mmcore.testing.conformance import AdapterConformance
    from mmcore.testing.trial import Trial

PROFILES = ("quick", "default", "thorough")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("mmcore", "conformance of mmcore adapters")
    group.addoption("--mmcore-adapter", metavar="NAME", help="try the laws of this installed adapter")
    group.addoption("--mmcore-checkpoint", metavar="DIR", help="on this model, not on tiny ones")
    group.addoption(
        "--mmcore-profile", choices=PROFILES, help="how many examples (default: ini mmcore_profile)"
    )
    parser.addini("mmcore_profile", "examples of the laws of mmcore adapters", default="default")


@pytest.fixture(scope="session")
def mmcore_worker() -> Iterator[Executor]:
    """A process in which laws look whether an adapter works there too."""
    from mmcore.testing.subject import spawned_worker

    with spawned_worker() as worker:
        yield worker


@pytest.fixture(scope="class")
def mmcore_trial(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, mmcore_worker: Executor
) -> Iterator[Trial]:
    """Of `mmcore.testing.conformance.AdapterConformance`: one checkpoint, open for its laws in turn."""
    profile = request.config.getoption("mmcore_profile") or request.config.getini("mmcore_profile")
    folder = tmp_path_factory.mktemp("checkpoint")
    with request.cls.opened(request.param, folder, profile, mmcore_worker) as trial:
        yield trial


def pytest_configure(config: pytest.Config) -> None:
    name = config.getoption("mmcore_adapter")
    if name is None:
        if config.getoption("mmcore_checkpoint") is not None:
            raise pytest.UsageError("--mmcore-checkpoint needs --mmcore-adapter NAME")
        return
    config.pluginmanager.register(NamedAdapter(config, name), "mmcore-named-adapter")


class NamedAdapter:
    """Puts the laws of one adapter among the tests; alone there where no path was asked for."""

    def __init__(self, config: pytest.Config, name: str) -> None:
        self._name = name
        self._class = _conformance(name, config.getoption("mmcore_checkpoint"))
        if config.args_source is not pytest.Config.ArgsSource.ARGS:
            config.args = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        module = ModuleType(self._name)
        setattr(module, self._class.__name__, self._class)
        items.extend(session.genitems(LawsModule.of(session, module)))


class LawsModule(pytest.Module):
    """A module of tests that lies in no file."""

    _laws: ModuleType

    @classmethod
    def of(cls, session: pytest.Session, module: ModuleType) -> LawsModule:
        made: LawsModule = cls.from_parent(
            session, path=session.path / module.__name__, nodeid=module.__name__
        )
        made._laws = module
        return made

    def _getobj(self) -> ModuleType:
        return self._laws


def _conformance(name: str, checkpoint: str | None) -> type[AdapterConformance]:
    """Raises `pytest.UsageError`: the option names what is not there."""
    from mmcore.errors import MMCoreError
    from mmcore.testing.extra import check_extra

    try:
        check_extra()
        from mmcore.testing.conformance import AdapterConformance

        folder = None if checkpoint is None else Path(checkpoint)

        class TestLaws(AdapterConformance):
            adapter = name
            checkpoint = folder

        TestLaws.found()
    except MMCoreError as error:
        raise pytest.UsageError(str(error)) from error
    return TestLaws
