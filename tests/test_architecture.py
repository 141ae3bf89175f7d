"""The pages under docs/ say what the code says."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import mmcore
from mmcore import hookspecs, llmapi

ROOT = Path(__file__).parent.parent
CORE = ROOT / "mmcore"
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PLUGIN_PAGE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")


def modules() -> list[str]:
    """Each module by the name the page gives it: `errors`, `core/scheduler`."""
    files = (path.relative_to(CORE).with_suffix("").as_posix() for path in CORE.rglob("*.py"))
    return sorted(name for name in files if not name.endswith(("__init__", "__main__")))


def hooks() -> dict[str, str]:
    """Name and signature of each hook, annotations as they are written."""
    functions = inspect.getmembers(hookspecs, inspect.isfunction)
    return {
        name: str(inspect.signature(f)).replace("'", "") for name, f in functions if name[:7] == "mmcore_"
    }


def rooms() -> dict[str, set[str]]:
    """What the page names in the paragraph of each room, which starts with the room: `` `core/`: ``."""
    paragraphs = re.split(r"\n\s*\n", ARCHITECTURE)
    starts = ((re.match(r"`([a-z_/]+)/`: ", text), text) for text in paragraphs)
    return {start[1]: set(re.findall(r"`([a-z0-9_]+)`", text)) for start, text in starts if start}


@pytest.mark.parametrize("module", modules())
def test_the_architecture_page_names_each_module(module: str) -> None:
    room, _, name = module.rpartition("/")
    assert name in rooms().get(room or "mmcore", ()), (
        f"docs/architecture.md: `{room or 'mmcore'}/` lacks `{name}`"
    )


def test_the_architecture_page_names_nothing_that_is_gone() -> None:
    there = {(room or "mmcore", name) for room, _, name in (module.rpartition("/") for module in modules())}
    named = {(room, name) for room, names in rooms().items() for name in names}
    assert named == there


def test_the_architecture_page_is_short() -> None:
    assert len(ARCHITECTURE.splitlines()) <= 80


@pytest.mark.parametrize("hook", hooks())
def test_each_hook_is_documented_with_its_exact_arguments(hook: str) -> None:
    assert f"{hook}{hooks()[hook]}" in PLUGIN_PAGE


def test_no_hook_is_documented_that_does_not_exist() -> None:
    assert set(re.findall(r"mmcore_[a-z0-9_]+(?=\()", PLUGIN_PAGE)) == set(hooks())


def test_hookspecs_stay_small() -> None:
    lines = (CORE / "hookspecs.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 100
    assert all(inspect.getdoc(getattr(hookspecs, hook)) for hook in hooks())


@pytest.mark.parametrize("name", mmcore.__all__)
def test_each_exported_name_is_there(name: str) -> None:
    assert getattr(mmcore, name) is not None


@pytest.mark.parametrize("name", llmapi.__all__)
def test_the_export_module_hands_on_the_same_objects(name: str) -> None:
    assert getattr(llmapi, name) is getattr(mmcore, name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    for module in (mmcore, llmapi):
        assert not hasattr(module, "Absent")
