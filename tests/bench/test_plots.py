"""`benchmarks/plots.py` draws what the bench has written, the same each time, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from benchmarks import plots
from benchmarks.plots import DRAWN, draw

SPREAD = {"median": 100.0, "low": 90.0, "high": 110.0}
PERCENTILES = {"mean": 12.0, "p50": 10.0, "p90": 20.0, "p99": 4000.0}
CELL = {"rows": 8, "tokens": 1, "context": 1024, "heads": [28, 4], "size": 128, "block": 16}
FOUND: dict[str, list[dict[str, Any]]] = {
    "throughput": [{"requests": n, "tokens_per_second": SPREAD} for n in (1, 4, 64)],
    "serve-sim": [{"request_rate": rate, "first_ms": PERCENTILES} for rate in (1.0, 2.5, None)],
    "kernels": [
        {"kernel": "paged_attention", "us": 20.0, "cell": {**CELL, "context": context}}
        for context in (1024, 32768)
    ]
    + [{"kernel": "argmax", "us": 9.0, "cell": {}}],
}
WORDS = {
    "throughput": ["requests at once", "new tokens a second", "64"],
    "serve-sim": ["requests a second", "time to first token, ms", "p99", "1,000"],
    "kernels": ["TB/s", "8 rows", "32,768", "best read-only kernel"],
}


@pytest.fixture(autouse=True)
def _text_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the words are outlines."""
    monkeypatch.setitem(plots.STYLE, "svg.fonttype", "none")


def write(folder: Path, command: str) -> Path:
    file = folder / f"{command}.json"
    file.write_text(json.dumps({"command": command, "device": "NVIDIA H200", "rows": FOUND[command]}))
    return file


@pytest.mark.parametrize("command", DRAWN)
def test_a_plot_says_what_its_axes_are(command: str, tmp_path: Path) -> None:
    file = write(tmp_path, command)
    assert draw(file, tmp_path / "one.svg")
    drawn = (tmp_path / "one.svg").read_text()
    assert [word for word in (*WORDS[command], "NVIDIA H200") if word not in drawn] == []
    assert draw(file, tmp_path / "two.svg")
    assert (tmp_path / "two.svg").read_text() == drawn


@pytest.mark.parametrize("content", ["[]", '{"command": "latency", "rows": []}', '{"workloads": []}'])
def test_other_results_are_left_alone(content: str, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(content)
    assert not draw(tmp_path / "other.json", tmp_path / "other.svg")
    assert not (tmp_path / "other.svg").exists()
