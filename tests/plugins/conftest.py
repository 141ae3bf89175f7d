"""`site`: real little distributions in a folder of their own, found through importlib.metadata."""

from __future__ import annotations

import importlib
import sys
import textwrap
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from mmcore.plugins import PluginRegistry, load_plugins

MANIFEST = """
from mmcore import AdapterInfo, hookimpl

@hookimpl
def mmcore_register_adapters():
    return [AdapterInfo(name="{name}", target="{target}", architectures={architectures!r})]
"""


class FakeSite:
    """A site-packages folder that tests fill."""

    def __init__(self, folder: Path, archive: Path | None) -> None:
        self.folder = folder
        self.archive = archive
        """On `sys.path` it sends the search through importlib.metadata instead of plain folders."""
        self.modules: set[str] = set()

    def install(
        self,
        distribution: str,
        entry_points: Mapping[str, str],
        modules: Mapping[str, str],
        version: str = "1.0",
    ) -> None:
        """Write a dist-info and modules, as pip would leave them."""
        info = self.folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        lines = "".join(f"{name} = {value}\n" for name, value in entry_points.items())
        (info / "entry_points.txt").write_text(f"[mmcore]\n{lines}")
        for name, source in modules.items():
            (self.folder / f"{name}.py").write_text(textwrap.dedent(source))
            self.modules.add(name)

    def family(self, name: str, *architectures: str, target: str = "absent_module:Absent") -> None:
        """A plugin ``NAME`` of distribution ``mmcore-plugin-NAME`` with one adapter ``NAME``."""
        source = MANIFEST.format(name=name, target=target, architectures=architectures)
        self.install(f"mmcore-plugin-{name}", {name: f"fake_{name}"}, {f"fake_{name}": source})

    def load(self, **environ: str) -> PluginRegistry:
        """`load_plugins()` where nothing but this folder is installed."""
        importlib.invalidate_caches()
        path = sys.path
        extra = [str(self.archive)] if self.archive else []
        sys.path = [
            str(self.folder),
            *extra,
            *(entry for entry in path if not any(Path(entry).glob("*.dist-info"))),
        ]
        try:
            return load_plugins(environ)
        finally:
            sys.path = path


@pytest.fixture(params=["plain folders", "archive"])
def site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[FakeSite]:
    archive = tmp_path / "archive.zip"
    zipfile.ZipFile(archive, "w").close()
    fake = FakeSite(tmp_path / "site", archive if request.param == "archive" else None)
    fake.folder.mkdir()
    monkeypatch.syspath_prepend(str(fake.folder))
    yield fake
    for name in fake.modules:
        sys.modules.pop(name, None)
