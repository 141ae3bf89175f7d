"""Deliberately broken adapters: each is first found by the law beside it, many by no test of parity.

The kinds of fault are those that users of other runtimes reported. `testing.broken` has them by part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from types import MappingProxyType

import mmcore_qwen2vl.conformance
import mmcore_whisper.conformance
import pytest
import torch
from testing.broken import answers, factories, processors, prompts, towers
from testing.broken.record import Broken

from mmcore.inputs.checkpoint import Checkpoint
from mmcore.plugins import load_plugins
from mmcore.testing.law import grounds
from mmcore.testing.laws import LAWS
from mmcore.testing.subject import Subject
from mmcore.testing.trial import Profile, try_laws

FAMILIES = MappingProxyType(
    {"pictures": mmcore_qwen2vl.conformance.FAMILY, "sounds": mmcore_whisper.conformance.FAMILY}
)
FAULTS = (*factories.FAULTS, *prompts.FAULTS, *processors.FAULTS, *towers.FAULTS, *answers.FAULTS)
BY_NAME = MappingProxyType({law.name: law for law in LAWS})
PARITY = "answers_equal_the_reference"
FEW = Profile("few", 12, shrinks=False)
"""Enough for each fault, and on the laws that an adapter must hold first."""

Open = Callable[[Broken], Subject]


def label(fault: Broken) -> str:
    return f"{fault.law}: {fault.name or getattr(fault.worse, '__name__', '')}"


def rests_on(name: str) -> list[str]:
    """All that the law needs, in order, and the law."""
    return [*(one.name for one in grounds(BY_NAME[name], LAWS)), name]


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: f.cases[0].write(tmp_path_factory.mktemp(name)) for name, f in FAMILIES.items()}


@pytest.fixture
def opened(folders: dict[str, Path], tmp_path: Path) -> Open:
    def open_broken(fault: Broken) -> Subject:
        family = FAMILIES[fault.family]
        folder = folders[fault.family]
        if fault.rewrite is not None:
            folder = Path(copytree(folder, tmp_path / "rewritten"))
            fault.rewrite(folder)
        registry = load_plugins()
        (info,) = (info for info in registry.inventory.adapters if info.name == family.adapter)
        checkpoint = Checkpoint(folder)
        adapter = fault.worse(registry.load_adapter(info, checkpoint.config, checkpoint))
        return Subject(
            replace(info, target=fault.target or info.target), adapter, family, family.cases[0], folder
        )

    return open_broken


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("fault", FAULTS, ids=label)
def test_the_law_beside_it_finds_it_first(opened: Open, fault: Broken) -> None:
    """Of the laws that it rests on none is broken."""
    check_first(opened(fault), fault, rests_on(fault.law))


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=label)
def test_no_law_before_it_finds_it(opened: Open, fault: Broken) -> None:
    names = [law.name for law in LAWS]
    check_first(opened(fault), fault, names[: names.index(fault.law) + 1])


def check_first(subject: Subject, fault: Broken, names: list[str]) -> None:
    with subject:
        verdicts = list(try_laws(subject, [BY_NAME[name] for name in names], FEW))
    broken = [(verdict.law.name, str(verdict.error)) for verdict in verdicts if verdict.outcome != "held"]
    assert [name for name, _ in broken] == [fault.law], broken


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.hidden], ids=label)
def test_parity_does_not_find_it(opened: Open, fault: Broken) -> None:
    with opened(fault) as subject:
        (verdict,) = try_laws(subject, [BY_NAME[PARITY]], Profile("some", 5, shrinks=False))
    assert verdict.outcome == "held", verdict.error


def test_each_law_has_two_and_ten_are_hidden_from_parity() -> None:
    counts = {law.name: sum(fault.law == law.name for fault in FAULTS) for law in LAWS}
    assert min(counts.values()) >= 2, counts
    assert sum(fault.hidden for fault in FAULTS) >= 10
