"""docs/plugins.md: its example works as it is printed, and it has each member of the contract as it is."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
CONTRACT = ("manifest", "adapter", "decoding")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_example_loads_and_resolves(site: Any) -> None:
    project = tomllib.loads(blocks("toml")[0])["project"]
    ((name, module),) = project["entry-points"]["mmcore"].items()
    site.install(project["name"], {name: module}, {module: blocks("python")[0]}, project["version"])
    registry = site.load()
    assert registry.inventory.failures == ()
    assert registry.resolve({"architectures": ["ShapesForConditionalGeneration"]}).name == name


def test_the_extension_on_the_page_is_a_valid_record() -> None:
    names: dict[str, Any] = {}
    exec(f"from mmcore import AdapterInfo\ninfo = {blocks('python')[1]}", names)
    assert names["info"].extends == "shapes"


# ------------------------------------------------------------------ the contract


def contract() -> Iterator[ast.stmt]:
    """What the contract's modules define."""
    for module in CONTRACT:
        yield from ast.parse((ROOT / "mmcore" / f"{module}.py").read_text(encoding="utf-8")).body


def members(code: ast.ClassDef) -> list[str]:
    """Fields with type and default, properties, methods with their arguments; in their order."""
    found = []
    for part in code.body:
        if isinstance(part, ast.Assign | ast.AnnAssign):
            found.append(ast.unparse(part))
        elif isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
            found.append(method(part))
    return [plain(text) for text in found]


def method(code: ast.FunctionDef) -> str:
    assert code.returns is not None
    given = ast.arguments(
        posonlyargs=code.args.posonlyargs,
        args=code.args.args[1:],  # without self
        vararg=code.args.vararg,
        kwonlyargs=code.args.kwonlyargs,
        kw_defaults=code.args.kw_defaults,
        kwarg=code.args.kwarg,
        defaults=code.args.defaults,
    )
    is_property = any(ast.unparse(decorator) == "property" for decorator in code.decorator_list)
    arguments = ": " if is_property else f"({ast.unparse(given)}) -> "
    return f"{code.name}{arguments}{ast.unparse(code.returns)}"


def plain(text: str) -> str:
    """One spelling, whatever the line breaks, the quotes and the blanks around an equals sign."""
    return re.sub(r" ?= ?", "=", " ".join(text.split())).replace("'", '"')


def sections() -> dict[str, list[str]]:
    """Members by the heading of their class, as the page has them."""
    _, *parts = re.split(r"^### `(\w+)`$", PAGE, flags=re.MULTILINE)
    bodies = [re.split(r"^## ", body, flags=re.MULTILINE)[0] for body in parts[1::2]]
    bullets = [re.findall(r"^- `([^`]+)`", body, re.MULTILINE) for body in bodies]
    return {name: [plain(one) for one in found] for name, found in zip(parts[::2], bullets, strict=True)}


CLASSES = {code.name: members(code) for code in contract() if isinstance(code, ast.ClassDef)}


@pytest.mark.parametrize("name", CLASSES)
def test_each_member_of_the_contract_is_on_the_page_as_it_is_written(name: str) -> None:
    found = sections().get(name, [])
    assert found == CLASSES[name], f"bring `{name}` in docs/plugins.md up to the code"


def test_the_page_has_no_class_that_is_gone_and_none_twice() -> None:
    assert sections().keys() == CLASSES.keys()
    assert len(re.findall(r"^### ", PAGE, re.MULTILINE)) == len(CLASSES)


def test_types_that_have_a_name_are_spelt_out() -> None:
    aliases = [
        ast.unparse(code)
        for code in contract()
        if isinstance(code, ast.Assign) and isinstance(code.value, ast.Subscript)
    ]
    assert aliases
    for alias in aliases:
        assert plain(alias) in plain(PAGE)


def test_what_was_once_left_out_is_seen() -> None:
    """The comparison sees fields: these were missing from the page before there was one."""
    assert any(text.startswith("survey:") for text in CLASSES["Adapter"])
    assert "transcribes: bool=False" in CLASSES["Adapter"]
    assert "sample_rate: int=0" in CLASSES["MediaLimits"]
    assert 'testing: str=""' in CLASSES["AdapterInfo"]
    assert any(text.startswith("banned_spans:") for text in CLASSES["LogitsEdit"])
