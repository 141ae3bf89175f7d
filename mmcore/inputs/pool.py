"""A bounded pool of threads that preprocess items while the engine steps.

Pillow and numpy let go of the interpreter for their long loops, so decode steps go on meanwhile. Results are
polled; nobody is called back. Deadlines are the engine's.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from mmcore.errors import MMCoreError, RequestAbortedError, RequestError
from mmcore.inputs.threads import join_threads, start_threads
from mmcore.request import EncoderInput, PreparedItem

_log = logging.getLogger(__name__)
Outcome = EncoderInput | MMCoreError
ReadyItem = tuple[str, int, Outcome]


@dataclass(frozen=True, eq=False, slots=True)
class _Job:
    request_id: str
    index: int
    item: PreparedItem


class PreprocessPool:
    """``workers`` threads. At most ``capacity`` items are in work or wait to be polled; workers pause there.

    ``wake`` is set whenever something can be polled, for an engine that also waits for other things. What
    waits to be started are references to items of requests that the engine has admitted.
    """

    def __init__(
        self,
        preprocess: Callable[[PreparedItem], EncoderInput],
        *,
        workers: int,
        capacity: int,
        wake: threading.Event | None = None,
    ) -> None:
        self._preprocess = preprocess
        self._wake = wake or threading.Event()
        self._capacity = max(1, capacity)
        lock = threading.Lock()
        self._changed = threading.Condition(lock)
        self._startable = threading.Condition(lock)
        """Workers wait here, and only as many are woken as there is work for."""
        self._waiting: deque[_Job] = deque()
        self._running: set[_Job] = set()
        self._cancelled: set[_Job] = set()
        self._ready: deque[ReadyItem] = deque()
        self._closed = False
        self._threads = start_threads(self._work, workers, "mmcore-preprocess")

    def submit(self, request_id: str, index: int, item: PreparedItem) -> None:
        """Start item ``index`` of a request. Raises `RequestAbortedError` once the pool is closed."""
        with self._changed:
            if self._closed:
                raise RequestAbortedError("the preprocessing pool is closed")
            self._waiting.append(_Job(request_id, index, item))
            self._startable.notify()

    def poll(self) -> list[ReadyItem]:
        """What has finished since the last poll: arrays, or the item's error."""
        with self._changed:
            ready = list(self._ready)
            self._ready.clear()
            self._startable.notify(len(ready))
            return ready

    def wait(self, timeout: float | None = None) -> bool:
        """Until something can be polled; False where nothing could within ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._ready) or self._closed, timeout) and bool(
                self._ready
            )

    def cancel(self, request_id: str) -> None:
        """Forget a request's items: none of them is polled from now on."""
        with self._changed:
            self._waiting = deque(job for job in self._waiting if job.request_id != request_id)
            self._ready = deque(ready for ready in self._ready if ready[0] != request_id)
            self._cancelled |= {job for job in self._running if job.request_id == request_id}
            self._startable.notify_all()

    def close(self) -> None:
        """End the threads, once they have finished what they are in the middle of.

        A thread that is left behind (`join_threads`) gives nothing any more.
        """
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
            self._startable.notify_all()
        join_threads(self._threads)
        self._ready.clear()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            outcome = self._run(job)
            with self._changed:
                self._running.discard(job)
                if job in self._cancelled:
                    self._cancelled.discard(job)
                elif not self._closed:
                    self._ready.append((job.request_id, job.index, outcome))
                    self._wake.set()
                self._changed.notify_all()
            del job, outcome  # an idle thread holds no pixels

    def _next(self) -> _Job | None:
        """The next job, once there is one and room for its result; None when the pool is closed."""
        with self._changed:
            self._startable.wait_for(self._may_start)
            if self._closed:
                return None
            job = self._waiting.popleft()
            self._running.add(job)
            return job

    def _may_start(self) -> bool:
        in_hand = len(self._ready) + len(self._running)
        return self._closed or (bool(self._waiting) and in_hand < self._capacity)

    def _run(self, job: _Job) -> Outcome:
        name = f"item {job.index + 1} ({job.item.modality})"
        # The errors made here carry no traceback: its frames would keep pixels alive.
        try:
            return self._preprocess(job.item)
        except MMCoreError as error:
            return type(error)(f"{name}: {error}")
        except BaseException as error:  # a plugin's code: whatever it raises fails this item alone
            _log.warning("preprocessing of %s of %s failed", name, job.request_id, exc_info=True)
            return RequestError(f"{name}: preprocessing failed ({type(error).__name__})")
