"""The example in docs/plugins.md works as it is printed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

PAGE = (Path(__file__).parent.parent.parent / "docs" / "plugins.md").read_text(encoding="utf-8")


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
