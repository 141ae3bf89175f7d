"""The files of a new adapter's package, out of the templates in ``mmcore/scaffold``."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template

from mmcore.errors import ConfigError

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
LONGEST = 30
"""Letters of a name: with more, lines of the templates would not fit their width."""

TEMPLATES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    ".gitignore": "gitignore",
    ".github/workflows/test.yml": "test.yml",
    "$module/__init__.py": "__init__.py",
    "$module/adapter.py": "adapter.py",
    "$module/encoder.py": "encoder.py",
    "$module/conformance.py": "conformance.py",
    "$module/py.typed": "",
    "tests/test_conformance.py": "test_conformance.py",
}
"""Path in the package: the template, none for an empty file."""


@dataclass(frozen=True, slots=True)
class NewPackage:
    """What the package of adapter ``name`` is called, in each place that names it."""

    name: str
    architecture: str

    @classmethod
    def named(cls, name: str, architecture: str | None = None) -> NewPackage:
        """Raises `ConfigError` where no package or class can be called so."""
        if not NAME.fullmatch(name) or len(name) > LONGEST:
            raise ConfigError(
                f"{name!r} is no adapter's name: lower-case letters, digits and single hyphens, at most "
                f"{LONGEST}, a letter first{_instead(name)}"
            )
        served = architecture or f"{_camel(name)}ForConditionalGeneration"
        if not served.isidentifier():
            raise ConfigError(
                f"--architecture {served!r} is no name of a class; give what `architectures` in the "
                "checkpoint's config.json says"
            )
        return cls(name, served)

    @property
    def distribution(self) -> str:
        return f"mmcore-plugin-{self.name}"

    @property
    def module(self) -> str:
        return f"mmcore_{self.name.replace('-', '_')}"

    def files(self) -> dict[str, str]:
        """Text by path."""
        words = {
            "name": self.name,
            "architecture": self.architecture,
            "distribution": self.distribution,
            "module": self.module,
            "family": _camel(self.name),
        }
        return {
            Template(path).substitute(words): _rendered(template, words)
            for path, template in TEMPLATES.items()
        }

    def write(self, into: Path) -> Path:
        """Write the package into a new folder there, and give that. Raises `ConfigError`."""
        folder = into / self.distribution
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            raise ConfigError(
                f"{folder} is there already: take it away, choose another name, or another place by --into"
            ) from None
        except OSError as error:
            raise _unwritable(folder, error) from error
        try:
            _write(folder, self.files())
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise _unwritable(folder, error) from error
        return folder


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")


def _unwritable(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(f"cannot write {folder}: {error.strerror}; choose a place by --into")


def _rendered(template: str, words: Mapping[str, str]) -> str:
    if not template:
        return ""
    text = files("mmcore").joinpath("scaffold", f"{template}.tmpl").read_text(encoding="utf-8")
    return Template(text).substitute(words)


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("-"))


def _instead(name: str) -> str:
    """The nearest name that would do."""
    near = "-".join(re.findall(r"[a-z0-9]+", name.lower()))[:LONGEST].lstrip("0123456789-").rstrip("-")
    return f"; {near!r} would do" if near else ""
