"""Figures as a table for people and as JSON, with what they were measured on."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from mmcore.bench.measure import Figures

COLUMNS = ("workload", "requests", "prompt", "first ms", "ms a token", "tokens/s", "total ms")


def table(figures: Sequence[Figures]) -> str:
    """Medians, with the lowest and the highest run in brackets."""
    rows = [
        (
            figure.workload,
            str(figure.requests),
            str(figure.prompt_tokens),
            str(figure.first_ms),
            str(figure.token_ms),
            str(figure.tokens_per_second),
            str(figure.total_ms),
        )
        for figure in figures
    ]
    widths = [max(map(len, column)) for column in zip(COLUMNS, *rows, strict=True)]
    lines = [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in (COLUMNS, *rows)
    ]
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    """Card, versions and commit."""
    import torch

    cuda = torch.cuda.is_available()
    return {
        "device": torch.cuda.get_device_name() if cuda else platform.processor() or platform.machine(),
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "commit": _commit(),
        **{name: _version(name) for name in ("torch", "triton", "mmcore-runtime")},
    }


def save(path: Path, figures: Sequence[Figures], **more: Any) -> None:
    content: Mapping[str, Any] = {
        **machine(),
        "workloads": [asdict(figure) for figure in figures],
        **more,
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or None
