"""``mmcore new-adapter``: a package that keeps every law as it is written, for an author to change."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mmcore.errors import ConfigError
from mmcore.plugins import PluginRegistry

if TYPE_CHECKING:
    from mmcore.cli.new_adapter_files import NewPackage

NEXT = """\
wrote {folder}: {count} files of a family that works, for you to change

  cd {folder}
  pip install -e '.[testing]'
  mmcore conformance {name}
  pytest

The laws hold as it stands. README.md there says what to change first, docs/writing-an-adapter.md what each
line is for."""


def add_new_adapter_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], registry: PluginRegistry
) -> None:
    parser = commands.add_parser(
        "new-adapter",
        help="write a package for a model family of your own",
        description=(
            "Write a package with an adapter, its encoder, tests and a workflow for CI. It keeps every law; "
            "change it, part by part, into the family you have in mind."
        ),
    )
    parser.add_argument("name", metavar="NAME", help="of the adapter, such as my-family")
    parser.add_argument(
        "--architecture", metavar="CLASS", help="what config.json names (default: MyFamilyForCondition...)"
    )
    parser.add_argument(
        "--into", metavar="DIR", type=Path, default=Path(), help="where its folder goes (default: here)"
    )
    parser.set_defaults(run=partial(run_new_adapter, registry))


def run_new_adapter(registry: PluginRegistry, arguments: argparse.Namespace) -> int:
    """Raises `ConfigError` for a name that is none or is taken, and a place that cannot be written."""
    from mmcore.cli.new_adapter_files import TEMPLATES, NewPackage

    package = NewPackage.named(arguments.name, arguments.architecture)
    check_free(registry, package)
    folder = package.write(arguments.into)
    print(NEXT.format(folder=folder, count=len(TEMPLATES), name=package.name))
    return 0


def check_free(registry: PluginRegistry, package: NewPackage) -> None:
    """Raises `ConfigError` where something that is installed has the name, the module or the architecture."""
    from importlib.util import find_spec

    inventory = registry.inventory
    for info in inventory.adapters:
        who = f"adapter {info.name!r} of {inventory.origin_of(info)}"
        if info.name == package.name:
            raise ConfigError(f"{who} is installed: choose another name, or uninstall that one first")
        if package.architecture in info.architectures:
            raise ConfigError(
                f"{who} serves {package.architecture}: choose another --architecture, uninstall that one, or "
                f'replace parts of it by AdapterInfo(extends="{info.name}") (docs/plugins.md)'
            )
    if find_spec(package.module) is not None:
        raise ConfigError(f"a module {package.module} is installed: choose another name, or uninstall that")
