"""What a client's UUIDs stood for when their content was last seen."""

from __future__ import annotations

import threading
from collections import OrderedDict

from mmcore.errors import MediaMissError
from mmcore.inputs.media import OpenedMedia
from mmcore.request import Modality

_Name = tuple[str, Modality, str]


class UuidIndex:
    """Bounded by bytes and entries, oldest use first out; one salt never sees another's. Thread-safe.

    An entry is the content itself: a medium sent by its UUID alone is keyed, and if need be encoded, exactly
    as it was when it came with its content.
    """

    def __init__(self, capacity_bytes: int = 256 << 20, capacity: int = 4096) -> None:
        self._capacity_bytes = capacity_bytes
        self._capacity = capacity
        self._entries: OrderedDict[_Name, OpenedMedia] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def remember(self, salt: str, modality: Modality, uuid: str, media: OpenedMedia) -> None:
        """``media`` was sent under ``uuid``; what the UUID stood for before is forgotten."""
        with self._lock:
            self._drop((salt, modality, uuid))
            if media.size > self._capacity_bytes:
                return
            self._entries[salt, modality, uuid] = media
            self._bytes += media.size
            while self._bytes > self._capacity_bytes or len(self._entries) > self._capacity:
                self._drop(next(iter(self._entries)))

    def find(self, salt: str, modality: Modality, uuid: str) -> OpenedMedia:
        """Raises `MediaMissError` (retryable): send the content again."""
        with self._lock:
            media = self._entries.get((salt, modality, uuid))
            if media is None:
                raise MediaMissError("nothing is known under this UUID any more; send the content with it")
            self._entries.move_to_end((salt, modality, uuid))
            return media

    def _drop(self, name: _Name) -> None:
        media = self._entries.pop(name, None)
        if media is not None:
            self._bytes -= media.size
