"""Log lines on standard error while a command runs: time, level, where, which request, what."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from mmcore.errors import ConfigError

LEVELS = ("debug", "info", "warning", "error", "critical")
VARIABLE = "MMCORE_LOG"
FORMAT = "%(asctime)s %(levelname)s %(name)s [%(request_id)s] %(message)s"


def log_level(option: str | None) -> str:
    """``--log-level``, else ``MMCORE_LOG``, else ``warning``. Raises `ConfigError`."""
    level = option or os.environ.get(VARIABLE, "").strip().lower() or "warning"
    if level not in LEVELS:
        raise ConfigError(f"{VARIABLE}={level!r} is no level; use one of {', '.join(LEVELS)}")
    return level


@contextmanager
def logging_to_stderr(level: str) -> Iterator[None]:
    """Show mmcore's own log from ``level`` on, and nobody else's."""
    import logging

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(FORMAT, defaults={"request_id": "-"}))
    logger = logging.getLogger("mmcore")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
