"""`docs/families.md` says what the installed plugins say, and their recorded parity is parity."""

from __future__ import annotations

import pytest

from benchmarks.families import PAGE, page, recorded_parity
from mmcore.manifest import AdapterInfo
from mmcore.plugins import load_plugins

ADAPTERS = [info for info in load_plugins().inventory.adapters if info.testing]


def test_the_page_is_what_the_plugins_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m benchmarks.families"


@pytest.mark.parametrize("info", ADAPTERS, ids=lambda info: info.name)
def test_each_kind_of_model_was_compared_with_its_reference(info: AdapterInfo) -> None:
    record = recorded_parity(info)
    assert record, f"run: python -m benchmarks.parity {info.name}"
    for models, found in record["models"].items():
        assert found["prompts"] >= 50, models
        assert found["different_tokens"] == 0, models
        assert 0 < found["worst"] <= 1e-4, models
