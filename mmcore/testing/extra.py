"""What the kit needs beside mmcore itself. Importing this module costs nothing."""

from __future__ import annotations

from importlib.util import find_spec

from mmcore.errors import MissingExtraError

PACKAGES = ("hypothesis", "pytest", "transformers")


def check_extra() -> None:
    """Raises `MissingExtraError`, which names what is missing and the command."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"the conformance kit needs {' and '.join(missing)}: pip install 'mmcore-runtime[testing]'"
        )
