"""Processes of one run that test on a GPU share its memory: each keeps to its part, its engines too."""

from __future__ import annotations

import os
from functools import cache

import pytest


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is not None:
        _keep_to_a_part(int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


@cache
def _keep_to_a_part(processes: int) -> None:
    """A tenth stays free for what torch does not count: contexts and libraries."""
    import torch

    if processes > 1 and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(0.9 / processes)
