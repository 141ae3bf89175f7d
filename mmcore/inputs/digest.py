"""What tells one checkpoint from another: a hub revision, or the BLAKE3 of its files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from blake3 import blake3

from mmcore.errors import CheckpointError

MAX_REMEMBERED = 512
"""Files whose digests the cache file keeps, the newest ones."""
_REVISION = re.compile(r"[0-9a-f]{40}")


def hub_revision(folder: Path) -> str | None:
    """The commit of a folder in the hub's cache (``models--*/snapshots/<commit>``), else None."""
    layout = folder.parent.name == "snapshots" and folder.parent.parent.name.startswith("models--")
    return folder.name if layout and _REVISION.fullmatch(folder.name) else None


def checkpoint_digest(folder: Path, weights: Iterable[Path], config: bytes) -> bytes:
    """32 bytes over the configuration and the weights; file digests are kept by path, size and time."""
    hasher = blake3(b"mmcore-checkpoint-1")
    revision = hub_revision(folder)
    if revision is not None:
        return bytes(hasher.update(b"hub" + revision.encode()).digest())
    hasher.update(b"files" + blake3(config).digest())
    cache = DigestCache(default_cache_file())
    for path in weights:
        place = path.absolute().relative_to(folder).as_posix()
        hasher.update(blake3(place.encode()).digest())
        hasher.update(cache.file_digest(path))
    return bytes(hasher.digest())


def default_cache_file() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "mmcore" / "digests.json"


class DigestCache:
    """Digests of large files in one small JSON file; works without it where it cannot be written."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def file_digest(self, path: Path) -> bytes:
        try:
            stat = path.stat()
            entry = f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}"
            known = self._read()
            if entry in known:
                return bytes.fromhex(known[entry])
            digest = bytes(blake3(max_threads=blake3.AUTO).update_mmap(path).digest())
        except OSError as error:
            raise CheckpointError(f"cannot read the weight file {path.name}: {error.strerror}") from None
        self._write({**known, entry: digest.hex()})
        return digest

    def _read(self) -> dict[str, str]:
        try:
            known = json.loads(self._file.read_bytes())
        except (OSError, ValueError):
            return {}
        if not isinstance(known, dict):
            return {}
        return {k: v for k, v in known.items() if isinstance(v, str) and re.fullmatch("[0-9a-f]{64}", v)}

    def _write(self, known: Mapping[str, str]) -> None:
        kept = dict(list(known.items())[-MAX_REMEMBERED:])
        with suppress(OSError):  # a read-only home costs only the time to hash again
            self._file.parent.mkdir(parents=True, exist_ok=True)
            draft = self._file.with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps(kept))
            draft.replace(self._file)
