"""``mmcore doctor``: what is here, what is broken, and the command that mends it."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial

from mmcore.cli.finding import Finding
from mmcore.cli.terminal import columns, has_colours, notice
from mmcore.plugins import PluginRegistry

COLOURS = {"ok": "32", "warning": "33", "broken": "31"}
LABEL = 9
"""Columns of the status and the blank behind it."""


def add_doctor_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], registry: PluginRegistry
) -> None:
    parser = commands.add_parser(
        "doctor",
        help="find what is broken, and the command that mends it",
        description=(
            "Look at versions, devices, kernels, caches, plugins and, where one is named, a model's files; "
            "on a GPU, run each kernel and capture a step. Nothing is changed or fetched. Exit code 1 where "
            "something is broken."
        ),
    )
    parser.add_argument("model", metavar="MODEL", nargs="?", help="a checkpoint folder, or a hub name")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=partial(run_doctor, registry))


def run_doctor(registry: PluginRegistry, arguments: argparse.Namespace) -> int:
    with notice("looking ..."):
        findings = tuple(examine(registry, arguments.model))
    broken = any(finding.status == "broken" for finding in findings)
    if arguments.json:
        import json

        found = {"healthy": not broken, "findings": [asdict(finding) for finding in findings]}
        print(json.dumps(found, indent=2))
    else:
        print("\n".join(report(findings, columns(), has_colours(sys.stdout))))
    return int(broken)


def examine(registry: PluginRegistry, model: str | None) -> Iterator[Finding]:
    from mmcore.cli import doctor_card, doctor_model, doctor_system

    yield from doctor_system.check_packages()
    yield from doctor_system.check_torch()
    yield from doctor_card.check_cards()
    yield from doctor_system.check_caches(os.environ)
    yield from doctor_system.check_plugins(registry.inventory)
    if model is not None:
        yield from doctor_model.check_model(model, registry)


def report(findings: Sequence[Finding], width: int, coloured: bool) -> Iterator[str]:
    """Lines no wider than ``width``, where their words allow it; a cure is never broken, for it is copied."""
    for finding in findings:
        label = finding.status.ljust(LABEL)
        wrapped = textwrap.wrap(
            f"{finding.what}: {finding.detail}",
            max(width - LABEL, 20),
            break_long_words=False,
            break_on_hyphens=False,
        )
        first, *rest = wrapped
        shown = f"\x1b[{COLOURS[finding.status]}m{label}\x1b[0m" if coloured else label
        yield shown + first
        yield from (" " * LABEL + line for line in rest)
        if finding.cure:
            yield f"{'':{LABEL}}mend: {finding.cure}"
    yield ""
    yield _summary(findings)


def _summary(findings: Sequence[Finding]) -> str:
    counts = {s: sum(f.status == s for f in findings) for s in ("broken", "warning")}
    if not any(counts.values()):
        return "all is well"
    warnings = "1 warning" if counts["warning"] == 1 else f"{counts['warning']} warnings"
    return f"{counts['broken']} broken, {warnings}"
