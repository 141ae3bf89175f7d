"""``mmcore conformance``: the laws of an adapter, tried and told."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mmcore.cli.terminal import columns, has_colours, notice
from mmcore.plugins import PluginRegistry

if TYPE_CHECKING:
    from mmcore.testing.law import Law
    from mmcore.testing.trial import Trial, Verdict

PROFILES = ("quick", "default", "thorough")


def add_conformance_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], registry: PluginRegistry
) -> None:
    parser = commands.add_parser(
        "conformance",
        help="try the laws of an adapter: does a family keep its promises?",
        description=(
            "Try the laws of an adapter (docs/laws.md) on generated media, over the tiny random checkpoints "
            "that its package names. Exit code 1 where one is broken."
        ),
    )
    parser.add_argument("adapter", metavar="NAME", help="an adapter, as `mmcore plugins` names it")
    parser.add_argument(
        "--checkpoint", metavar="DIR", type=Path, help="this model instead of the tiny ones, in float32"
    )
    parser.add_argument("--law", metavar="LAW", action="append", help="only this one; may be repeated")
    parser.add_argument(
        "--profile", choices=PROFILES, default="default", help="how many examples: %(default)s"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=partial(run_conformance, registry))


def run_conformance(registry: PluginRegistry, arguments: argparse.Namespace) -> int:
    """Raises `MissingExtraError`, `PluginError`, `CheckpointError`."""
    from mmcore.testing.extra import check_extra

    check_extra()
    from mmcore.testing.lookup import find_laws

    laws = find_laws(arguments.law or ())
    started = time.monotonic()
    with _trials(registry, arguments) as trials:
        by_law = _verdicts(laws, trials)
        verdicts = (
            _print_json(arguments, by_law) if arguments.json else _print_report(arguments, by_law, started)
        )
    return int(any(verdict.outcome == "broken" for verdict in verdicts))


@contextmanager
def _trials(registry: PluginRegistry, arguments: argparse.Namespace) -> Iterator[list[Trial]]:
    """One a checkpoint, all open at once."""
    from tempfile import TemporaryDirectory

    from mmcore.testing.lookup import find_family, open_case
    from mmcore.testing.subject import spawned_worker
    from mmcore.testing.trial import PROFILES as profiles
    from mmcore.testing.trial import Trial

    info, family = find_family(registry, arguments.adapter, arguments.checkpoint)
    with TemporaryDirectory(prefix="mmcore-") as folder, ExitStack() as stack:
        trials, worker = [], stack.enter_context(spawned_worker())
        for number, case in enumerate(family.cases):
            with notice(f"opening {case.name} ..."):
                subject = open_case(info, family, case, Path(folder, str(number)), worker)
            trials.append(Trial(stack.enter_context(subject), profiles[arguments.profile]))
        yield trials


def _verdicts(laws: Sequence[Law], trials: Sequence[Trial]) -> Iterator[tuple[Law, list[Verdict]]]:
    for law in laws:
        verdicts = []
        for trial in trials:
            with notice(f"{law.name}: {trial.subject.case.name} ..."):
                verdicts.append(trial.verdict(law))
        yield law, verdicts


def _print_report(
    arguments: argparse.Namespace, by_law: Iterator[tuple[Law, list[Verdict]]], started: float
) -> list[Verdict]:
    from mmcore.testing.report import law_lines, summary

    every: list[Verdict] = []
    for law, verdicts in by_law:
        for line in law_lines(law, verdicts, columns(), has_colours(sys.stdout)):
            print(line, flush=True)
        every += verdicts
    print(f"\n{arguments.adapter}: {summary(every, time.monotonic() - started)}")
    return every


def _print_json(arguments: argparse.Namespace, by_law: Iterator[tuple[Law, list[Verdict]]]) -> list[Verdict]:
    import json

    from mmcore.testing.report import as_json

    every = [verdict for _, verdicts in by_law for verdict in verdicts]
    facts = {
        "adapter": arguments.adapter,
        "profile": arguments.profile,
        "conforms": not any(verdict.outcome == "broken" for verdict in every),
        "verdicts": [as_json(verdict) for verdict in every],
    }
    print(json.dumps(facts, indent=2))
    return every
