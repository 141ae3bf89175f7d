"""What `mmcore doctor` found out about one thing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warning", "broken"]


@dataclass(frozen=True, slots=True)
class Finding:
    """``cure`` is a command where one mends it; empty where nothing is to be done."""

    what: str
    status: Status
    detail: str
    cure: str = ""
