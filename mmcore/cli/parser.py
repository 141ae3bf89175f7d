"""The commands and their options, those of plugins included."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from functools import partial
from typing import NoReturn

from mmcore import __version__
from mmcore.bench.command import add_bench_command
from mmcore.cli.chat import add_chat_command
from mmcore.cli.conformance import add_conformance_command
from mmcore.cli.doctor import add_doctor_command
from mmcore.cli.generate import add_generate_command
from mmcore.cli.logs import LEVELS, VARIABLE
from mmcore.cli.new_adapter import add_new_adapter_command
from mmcore.cli.plugins import run_plugins
from mmcore.cli.transcribe import add_transcribe_command
from mmcore.plugins import PluginRegistry


class Parser(argparse.ArgumentParser):
    """Says a mistake in one line that starts with ``error:``, like every other error of the command."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}\nSee: {self.prog} --help\n")


def build_parser(registry: PluginRegistry) -> argparse.ArgumentParser:
    """Plugins add their commands here; one that cannot is told on stderr and left out."""
    parser: argparse.ArgumentParser = Parser(
        prog="mmcore", description="Run multimodal models: pictures and sound in, text out."
    )
    parser.add_argument("--version", action="version", version=f"mmcore {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    add_chat_command(commands)
    add_generate_command(commands)
    add_transcribe_command(commands)
    add_bench_command(commands)
    add_doctor_command(commands, registry)
    _add_plugins_command(commands, registry)
    add_conformance_command(commands, registry)
    add_new_adapter_command(commands, registry)
    for failure in registry.call_each("mmcore_add_cli_commands", subparsers=commands):
        print(
            f"warning: {failure.origin} could not add its commands: {failure.reason}. {failure.cure}",
            file=sys.stderr,
        )
    for command in {id(known): known for known in (parser, *commands.choices.values())}.values():
        _add_log_level(command)
    if registry.inventory.failures:
        parser.epilog = f"{len(registry.inventory.failures)} plugin(s) did not load: see `mmcore doctor`."
    return parser


def _add_log_level(parser: argparse.ArgumentParser) -> None:
    """Before and after the command's name; a plugin's command may use the name for itself."""
    with suppress(argparse.ArgumentError):
        parser.add_argument(
            "--log-level",
            choices=LEVELS,
            default=argparse.SUPPRESS,
            help=f"show mmcore's log on standard error (default: {VARIABLE}, else warning)",
        )


def _add_plugins_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], registry: PluginRegistry
) -> None:
    parser = commands.add_parser(
        "plugins",
        help="list what is installed, and what is broken and why",
        description="List the installed plugins, their adapters and the architectures they serve.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=partial(run_plugins, registry.inventory))
