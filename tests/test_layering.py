"""Who may import whom. A new room or root module needs a line here, so that the house keeps its plan."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import mmcore

ROOT = Path(__file__).parent.parent
CORE = ROOT / "mmcore"
PLUGINS = ROOT / "plugins"

CONTRACTS = frozenset(
    [
        "errors",
        "config",
        "sampling_params",
        "request",
        "decoder_config",
        "decoding",
        "adapter",
        "hookspecs",
        "manifest",
        "transcript",
        "plugins",
    ]
)
ENGINE = frozenset(
    [
        "engine",
        "engine_builder",
        "item_feeder",
        "async_engine",
        "request_handle",
        "request_log",
        "output_processor",
        "sampling_defaults",
        "startup",
        "call_arguments",
        "progress",
        "transcribe",
        "llm",
    ]
)
FRONTS = frozenset(["cli", "server", "subtitles", "__main__"])
EXPORTS = frozenset({"", "llmapi"})
"""Modules that only hand on names, lazily: what they name at type-check time is no dependency."""

LAYERS = {
    "contracts": {"contracts"},
    "exports": {"contracts", "exports"},
    "inputs": {"contracts", "exports", "inputs"},
    "core": {"contracts", "core"},
    "kernels": {"kernels", "mmcore.errors"},
    "parts": {"contracts", "inputs", "parts"},
    "model": {"contracts", "kernels", "model", "mmcore.parts.vit", "mmcore.parts.frame_patches"},
    "runner": {"contracts", "kernels", "model", "runner", "mmcore.core.output"},
    "engine": {"contracts", "exports", "inputs", "core", "model", "runner", "engine"},
    "bench": {
        *("contracts", "exports", "inputs", "kernels", "engine", "bench"),
        "mmcore.runner.graph_recorder",
    },
    "front": {
        *("contracts", "exports", "inputs", "engine", "front", "bench", "kit command"),
        "mmcore.kernels.dispatch",
    },
    "testing": {"contracts", "exports", "inputs", "core", "kernels", "model", "runner", "engine", "testing"},
    "kit command": {"contracts", "front", "testing"},
}
"""Room: the rooms, or single modules, that it may import."""

HEAVY = frozenset(["torch", "triton", "transformers", "numpy"])
FORBIDDEN = {
    "contracts": HEAVY,
    "exports": HEAVY,
    "core": HEAVY,
    "inputs": HEAVY - {"numpy"},
    "bench": frozenset({"transformers"}),
    "front": HEAVY,
    "kit command": HEAVY | {"hypothesis", "pytest"},
    "kernels": frozenset({"transformers"}),
    "parts": HEAVY - {"numpy"},
    "model": frozenset({"transformers"}),
    "runner": frozenset({"transformers"}),
    "engine": frozenset({"transformers"}),
}
"""Distributions a room never imports while it is loaded; `core` never at all."""

FAMILY_NAMES = re.compile(r"llava|qwen|vila|blip|whisper|nougat|siglip|t5\b", re.IGNORECASE)


@dataclass(frozen=True)
class Import:
    """One imported module. ``lazy``: inside a function; ``typing``: under ``if TYPE_CHECKING``."""

    module: str
    line: int
    lazy: bool = False
    typing: bool = False


@cache
def imports_of(path: Path) -> tuple[Import, ...]:
    return tuple(_walk(ast.parse(path.read_text(encoding="utf-8")), lazy=False, typing=False))


def _walk(node: ast.AST, *, lazy: bool, typing: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            for module in _modules(child):
                yield Import(module, child.lineno, lazy, typing)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from _walk(child, lazy=lazy, typing=True)
        else:
            inside = lazy or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _walk(child, lazy=inside, typing=typing)


def _modules(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    assert node.level == 0, f"relative import in line {node.lineno}: write the module's full name"
    for alias in node.names:
        yield _home(node.module or "", alias.name)


def _home(module: str, name: str) -> str:
    """The module behind ``from module import name``: a submodule, or where a lazy name lives."""
    if module == "mmcore" and name in mmcore._HOMES:
        return mmcore._HOMES[name]
    inside = ROOT.joinpath(*module.split(".")) / name
    return f"{module}.{name}" if inside.is_dir() or inside.with_suffix(".py").is_file() else module


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    if module == "mmcore.cli.conformance":
        return "kit command"
    first = module.split(".")[1] if "." in module else ""
    groups = (("contracts", CONTRACTS), ("engine", ENGINE), ("front", FRONTS), ("exports", EXPORTS))
    room = next((name for name, members in groups if first in members), first)
    assert room in LAYERS, f"{module} belongs to no room: give it one in {Path(__file__).name}"
    return room


def core_files() -> list[Path]:
    return sorted(CORE.rglob("*.py"))


def plugin_files() -> list[Path]:
    return sorted(PLUGINS.glob("*/mmcore_*/**/*.py"))


def label(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", core_files(), ids=label)
def test_the_core_imports_only_what_its_room_may(path: Path) -> None:
    room = room_of(module_of(path))
    for found in imports_of(path):
        if found.module.split(".")[0] != "mmcore" or (room == "exports" and found.typing):
            continue
        allowed = LAYERS[room]
        assert room_of(found.module) in allowed or found.module in allowed, (
            f"{label(path)}:{found.line} ({room}) imports {found.module} ({room_of(found.module)})"
        )


@pytest.mark.parametrize("path", core_files(), ids=label)
def test_the_core_stays_light(path: Path) -> None:
    room = room_of(module_of(path))
    for found in imports_of(path):
        never = room == "core" or not (found.lazy or found.typing)
        heavy = found.module.split(".")[0] in FORBIDDEN.get(room, ())
        assert not (never and heavy), f"{label(path)}:{found.line} imports {found.module}"


@pytest.mark.parametrize("path", core_files(), ids=label)
def test_the_core_knows_no_plugin_and_nothing_imports_the_conformance_kit(path: Path) -> None:
    for found in imports_of(path):
        assert not found.module.startswith("mmcore_"), f"{label(path)}:{found.line} imports a plugin"
        if found.module.startswith("mmcore.testing"):
            assert room_of(module_of(path)) in ("testing", "kit command"), (
                f"{label(path)}:{found.line} imports the test kit"
            )


@pytest.mark.parametrize("path", core_files(), ids=label)
def test_the_core_names_no_family(path: Path) -> None:
    """In code. Docstrings and comments may say where a formula comes from."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not FAMILY_NAMES.search(label(path))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        words = () if id(node) in docstrings else _words(node)
        named = [word for word in words if FAMILY_NAMES.search(word)]
        assert not named, f"{label(path)}:{getattr(node, 'lineno', 0)} names {named}"


def _words(node: ast.AST) -> Iterator[str]:
    """Identifiers and strings of one node."""
    for field in ("id", "attr", "name", "arg", "module", "asname"):
        value = getattr(node, field, None)
        if isinstance(value, str):
            yield value
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


# ------------------------------------------------------------------ plugins

MANIFEST_MAY = {"contracts", "exports"}
ADAPTER_MAY = {"contracts", "exports", "inputs", "parts"}
TOWER_MAY = ADAPTER_MAY | {
    "kernels",
    "mmcore.model.layers",
    "mmcore.model.relative_bias",
    "mmcore.model.rope",
    "mmcore.model.vit",
    "mmcore.model.frame_patches",
    "mmcore.model.pixel_patches",
    "mmcore.model.vision_transformer",
    "mmcore.model.blends",
    "mmcore.model.biased_encoder",
}
COMMAND_MAY = {"contracts", "exports", "inputs", "front", "mmcore.llm"}


def plugin_rules(path: Path) -> tuple[set[str], frozenset[str]]:
    """(what this file may import of mmcore at once, what it may not import of others at once).

    Inside functions an adapter may do what a tower may: that is how it builds one.
    """
    name = path.name
    if name == "__init__.py" and path.parent.name.startswith("mmcore_"):
        return MANIFEST_MAY, HEAVY
    if name in ("cli.py", "demo.py"):
        return COMMAND_MAY, HEAVY
    if any(found.module.split(".")[0] == "torch" and not found.typing for found in imports_of(path)):
        return TOWER_MAY, frozenset({"transformers"})
    return ADAPTER_MAY, frozenset({"torch", "triton", "transformers"})


@pytest.mark.parametrize("path", plugin_files(), ids=label)
def test_a_plugin_imports_only_what_its_part_may(path: Path) -> None:
    family = path.relative_to(PLUGINS).parts[1]
    allowed, forbidden = plugin_rules(path)
    for found in imports_of(path):
        top, where = found.module.split(".")[0], f"{label(path)}:{found.line} imports {found.module}"
        if top.startswith("mmcore_"):
            assert top == family, f"{where}: another family"
        elif top == "mmcore" and room_of(found.module) != "testing":
            may = TOWER_MAY | allowed if found.lazy else allowed
            assert room_of(found.module) in may or found.module in may, where
        assert not (top in forbidden and not found.lazy and not found.typing), where


def test_an_adapter_module_is_importable_without_torch_by_rule() -> None:
    """The rule above takes a file with torch for a tower: no adapter may become one."""
    for path in plugin_files():
        if path.name == "adapter.py":
            assert plugin_rules(path)[0] is ADAPTER_MAY, f"{label(path)} imports torch"


# ------------------------------------------------------------------ the checks themselves can fail


def test_the_walker_sees_each_kind_of_import(tmp_path: Path) -> None:
    source = tmp_path / "sample.py"
    source.write_text(
        "import torch.nn\nfrom mmcore import LLM, errors\nif TYPE_CHECKING:\n    import numpy\n"
        "def f():\n    from mmcore.core import output\n"
    )
    found = {(i.module, i.lazy, i.typing) for i in imports_of(source)}
    assert found == {
        ("torch.nn", False, False),
        ("mmcore.llm", False, False),
        ("mmcore.errors", False, False),
        ("numpy", False, True),
        ("mmcore.core.output", True, False),
    }
    assert room_of("mmcore.llm") not in LAYERS["core"]
    assert room_of("mmcore.core.scheduler") not in LAYERS["runner"]
    assert FAMILY_NAMES.search("Qwen2VLForConditionalGeneration")
