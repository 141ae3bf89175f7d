"""Where a medium's bytes come from: memory, ``data:``, a local path, ``http(s)``, a plugin's scheme.

Every way in passes the same byte budget. Error texts repeat nothing that the caller did not give.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from urllib.parse import unquote_to_bytes

from mmcore.config import MediaPolicy
from mmcore.errors import MediaFileError, MediaFormatError, MediaLimitError, MediaPolicyError
from mmcore.inputs.http import HttpClient

FetchHook = Callable[[str, MediaPolicy], bytes | None]
"""`mmcore_fetch_media`: bytes for a scheme that the core does not know, or None."""
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_SHOWN = 200
"""Characters of a path that an error repeats."""


@dataclass(frozen=True, slots=True)
class MediaFetcher:
    """Reads media under a policy. Raises `MediaError`s."""

    policy: MediaPolicy
    hook: FetchHook | None = None
    http: HttpClient = field(default_factory=HttpClient)

    def read(self, where: str | os.PathLike[str]) -> bytes:
        """The bytes behind a URL or a path."""
        if not isinstance(where, str):
            return self.read_path(Path(where))
        scheme = _SCHEME.match(where)
        kind = scheme[1].lower() if scheme else ""
        if kind == "data":
            return self._read_data_url(where)
        if kind in ("http", "https"):
            return self.http.get(where, self.policy)
        if kind == "file":
            return self.read_path(Path(_file_url_path(where)))
        if kind and "://" in where:
            return self._read_by_hook(where, kind)
        return self.read_path(Path(where))

    def check_size(self, size: int) -> None:
        if size > self.policy.max_bytes:
            raise MediaLimitError(f"{size} bytes are over the policy's max_bytes {self.policy.max_bytes}")

    def read_path(self, given: Path) -> bytes:
        path = self._allowed(given)
        try:
            with open(path, "rb", opener=_open_at_once) as file:
                state = os.fstat(file.fileno())
                if not stat.S_ISREG(state.st_mode):
                    raise MediaPolicyError("the path does not name a regular file")
                self.check_size(state.st_size)
                data = file.read(self.policy.max_bytes + 1)
        except FileNotFoundError:
            raise MediaFileError(f"there is no such file: {str(given)[:_SHOWN]!r}") from None
        except IsADirectoryError:
            raise MediaPolicyError("the path does not name a regular file") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "not a path"
            raise MediaFileError(f"the file cannot be read: {reason}") from None
        self.check_size(len(data))
        return data

    def read_file(self, file: IO[bytes]) -> bytes:
        """A binary file object, from its start where it can be wound back."""
        try:
            if file.seekable():
                file.seek(0)
            data = file.read(self.policy.max_bytes + 1)
        except (OSError, ValueError) as error:
            raise MediaFileError(f"the file object cannot be read: {error}") from None
        if not isinstance(data, bytes):
            raise MediaFormatError("the file object gives text; open it in binary mode")
        self.check_size(len(data))
        return data

    def _allowed(self, path: Path) -> Path:
        """The path, resolved under the media root where the caller is not this process."""
        root = self.policy.media_root
        if self.policy.trust_local:
            return Path(os.path.expanduser(path))
        if root is None:
            raise MediaPolicyError("local files are not read here; send a data: or an http(s) URL")
        try:
            resolved = (root / path).resolve(strict=False)
        except (OSError, ValueError, RuntimeError):
            raise MediaPolicyError("the path is not one under the media root") from None
        if not resolved.is_relative_to(root.resolve()):
            raise MediaPolicyError("the path is not one under the media root")
        return resolved

    def _read_data_url(self, url: str) -> bytes:
        head, comma, body = url.partition(",")
        if not comma:
            raise MediaFormatError("the data: URL has no comma before its data")
        if not head.rstrip().lower().endswith(";base64"):
            self.check_size(len(body) // 3)
            data = unquote_to_bytes(body)
        else:
            self.check_size(len(body) // 4 * 3 - 2)
            try:
                data = base64.b64decode(body, validate=True)
            except (binascii.Error, ValueError):
                raise MediaFormatError("the data: URL is not valid base64") from None
        self.check_size(len(data))
        return data

    def _read_by_hook(self, url: str, scheme: str) -> bytes:
        data = None if self.hook is None else self.hook(url, self.policy)
        if data is None:
            raise MediaPolicyError(
                f"URLs of scheme {scheme[:20]!r} are not fetched: accepted are data:, http(s):// "
                "and what installed plugins add (mmcore_fetch_media)"
            )
        self.check_size(len(data))
        return data


def _open_at_once(path: str, flags: int) -> int:
    """A pipe that nobody writes to would block."""
    return os.open(path, flags | os.O_NONBLOCK)


def _file_url_path(url: str) -> str:
    rest = url[len("file:") :]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in ("", "localhost"):
            raise MediaPolicyError("a file:// URL names no other host")
        rest = slash + path
    return os.fsdecode(unquote_to_bytes(rest))
