"""A model's folder, from a path or a name on the Hugging Face hub."""

from __future__ import annotations

import os
import re
from pathlib import Path

from mmcore.errors import CheckpointError, ConfigError

NEEDED_FILES = ("*.json", "*.txt", "*.jinja", "*.model", "*.safetensors")
UNNEEDED_FILES = ("consolidated*", "original/*", "onnx/*", "*/onnx/*")
"""Second copies of the weights in other layouts."""
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def resolve_model(name_or_path: str | Path, revision: str | None = None, token: str | None = None) -> Path:
    """The folder itself, or the hub's files in its cache, honouring its variables (``HF_HOME`` ...).

    Raises `CheckpointError` where there is neither, `ConfigError` where huggingface_hub is missing.
    """
    name = str(name_or_path)
    folder = Path(os.path.expanduser(name))
    if name and folder.is_dir():
        return folder
    if not _HUB_NAME.fullmatch(name):
        raise CheckpointError(f"there is no folder {name!r}, and it is not a name on the hub (owner/model)")
    return _download(name, revision, token)


def _download(name: str, revision: str | None, token: str | None) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ConfigError(
            f"there is no folder {name!r}; to fetch it from the hub: pip install 'mmcore-runtime[hub]'"
        ) from None
    try:
        found = snapshot_download(
            name,
            revision=revision,
            token=token,
            allow_patterns=list(NEEDED_FILES),
            ignore_patterns=list(UNNEEDED_FILES),
        )
    except Exception as error:  # the client's errors have no common base
        raise CheckpointError(_explain(name, revision, error)) from error
    return Path(found)


def _explain(name: str, revision: str | None, error: Exception) -> str:
    what = f"{name!r}" + (f" at revision {revision!r}" if revision else "")
    reasons = {
        "GatedRepoError": "it is gated: accept its terms on the hub and set HF_TOKEN",
        "RepositoryNotFoundError": "no such model, or it is private and HF_TOKEN is not set",
        "RevisionNotFoundError": "it has no such revision",
        "LocalEntryNotFoundError": "it is not in the local cache and the hub cannot be reached",
        "OfflineModeIsEnabled": "it is not in the local cache and HF_HUB_OFFLINE is set",
    }
    names = (kind.__name__ for kind in type(error).__mro__)
    reason = next((reasons[kind] for kind in names if kind in reasons), f"{type(error).__name__}")
    return f"there is no folder {what} here, and the hub did not give it: {reason}"
