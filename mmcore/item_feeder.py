"""Which items are preprocessed next, and until when.

Preprocessed arrays are large, so a request's items start only while those in the window are few: items in
work, and items of requests that have not been scheduled yet. A request's items enter together, so that none
waits, half preprocessed, for room that it holds itself.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count, takewhile
from typing import Protocol

from mmcore.errors import RequestTimeoutError
from mmcore.inputs.pool import ReadyItem
from mmcore.request import PreparedItem, PreparedRequest


class ItemPool(Protocol):
    """Who preprocesses items beside the steps: `PreprocessPool`."""

    def submit(self, request_id: str, index: int, item: PreparedItem) -> None: ...
    def poll(self) -> list[ReadyItem]: ...
    def cancel(self, request_id: str) -> None: ...
    def close(self) -> None: ...


class ItemFeeder:
    """Hands items to the pool, best priority and oldest first; ``timeout`` seconds run from there."""

    def __init__(self, pool: ItemPool, *, window: int, timeout: float) -> None:
        self._pool = pool
        self._window = window
        self._timeout = timeout
        self._order = count()
        self._queue: list[tuple[int, int, PreparedRequest, Sequence[int]]] = []
        self._waiting: set[str] = set()
        self._unscheduled: dict[str, int] = {}
        self._deadlines: dict[tuple[str, int], float] = {}

    def add(self, request: PreparedRequest, items: Sequence[int]) -> None:
        """Queue a new request's items."""
        if items:
            self._waiting.add(request.request_id)
            heappush(self._queue, (request.priority, next(self._order), request, items))
            self._fill()

    def add_again(self, request: PreparedRequest, item: int) -> None:
        """An item of a request that was scheduled before: it waits for nobody."""
        self._submit(request, item)

    def scheduled(self, request_id: str) -> None:
        """The request's items are the batch's from now on, and make room for the next ones."""
        if self._unscheduled.pop(request_id, None) is not None:
            self._fill()

    def cancel(self, request: PreparedRequest) -> None:
        """The request has ended."""
        request_id = request.request_id
        self._pool.cancel(request_id)
        self._waiting.discard(request_id)
        self._unscheduled.pop(request_id, None)
        for item in range(len(request.items)):
            self._deadlines.pop((request_id, item), None)
        self._fill()

    def take(self) -> list[ReadyItem]:
        """Items that are done since the last call: arrays, or the error of a failed or late one."""
        ready = [item for item in self._pool.poll() if self._deadlines.pop(item[:2], None) is not None]
        now = time.monotonic()
        late = [key for key, _ in takewhile(lambda entry: entry[1] < now, self._deadlines.items())]
        for key in late:
            del self._deadlines[key]
        return ready + [(request_id, item, self._late(item)) for request_id, item in late]

    def close(self) -> None:
        """End the pool's threads."""
        self._pool.close()

    def _fill(self) -> None:
        while self._queue and sum(self._unscheduled.values()) < self._window:
            _, _, request, items = heappop(self._queue)
            if request.request_id in self._waiting:
                self._waiting.remove(request.request_id)
                self._unscheduled[request.request_id] = len(items)
                for item in items:
                    self._submit(request, item)

    def _submit(self, request: PreparedRequest, item: int) -> None:
        self._deadlines[request.request_id, item] = time.monotonic() + self._timeout
        self._pool.submit(request.request_id, item, request.items[item])

    def _late(self, item: int) -> RequestTimeoutError:
        return RequestTimeoutError(
            f"item {item + 1} was not preprocessed within {self._timeout:g} s (preprocess_timeout); try again"
        )
