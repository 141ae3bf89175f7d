"""The line of an adapter's package where an error arose."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mmcore.errors import CheckpointError, PluginLoadError
from mmcore.manifest import AdapterInfo
from mmcore.parts.fields import reads_checkpoint
from mmcore.testing.family import Case, Family
from mmcore.testing.lookup import open_case
from mmcore.testing.place import place_of

SOURCE = """
def outer(call):
    return call(
        1
    )

def inner(value):
    raise LookupError("no such row")
"""
INFO = AdapterInfo(name="shapes", target="mmcore_shapes.adapter:Shapes")


@pytest.fixture
def module() -> ModuleType:
    """A module of the package that `INFO` names."""
    made = ModuleType("mmcore_shapes.rows")
    exec(compile(SOURCE, "/some/where/rows.py", "exec"), made.__dict__)
    return made


def raised_by(call: Callable[..., Any], *arguments: object) -> BaseException:
    try:
        call(*arguments)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_the_innermost_line_of_the_package_is_named(module: ModuleType) -> None:
    assert place_of(raised_by(module.outer, module.inner), INFO) == "rows.py:8, in inner"
    assert place_of(raised_by(module.outer, int.from_bytes), INFO) == "rows.py:3, in outer"


def test_an_error_that_is_raised_on_counts_where_it_began(module: ModuleType) -> None:
    told = raised_by(reads_checkpoint(module.outer), module.inner)
    assert isinstance(told, CheckpointError)
    assert place_of(told, INFO) == "rows.py:8, in inner"


def test_other_packages_are_not_the_author_s(module: ModuleType) -> None:
    assert place_of(raised_by(int, "x"), INFO) == ""
    assert place_of(raised_by(module.inner, 1), AdapterInfo(name="a", target="mmcore_other:A")) == ""


def test_a_checkpoint_that_cannot_be_written_names_the_line(module: ModuleType, tmp_path: Path) -> None:
    family = Family(adapter="shapes", cases=(Case(name="tiny", write=module.inner),), published={})
    with pytest.raises(PluginLoadError, match=r"LookupError: no such row \(rows\.py:8, in inner\)"):
        open_case(INFO, family, family.cases[0], tmp_path)
