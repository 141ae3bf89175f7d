"""What a command's exit code says about an error."""

from __future__ import annotations

from mmcore.errors import MMCoreError


def exit_code(error: MMCoreError) -> int:
    """2: the caller can mend it; 1: the model, a plugin or mmcore failed."""
    return 2 if error.http_status < 500 else 1
