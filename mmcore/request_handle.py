"""One submitted request, as its caller holds it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import suppress

from mmcore.errors import RequestError
from mmcore.request import RequestOutput


class RequestHandle:
    """One submitted request.

    ``result()`` blocks, ``await handle`` gives the final output, ``async for`` and ``for`` give the output so
    far each time it grew. A failed request raises its `MMCoreError` from each of them. Leaving a loop early,
    or cancelling what awaits the handle, aborts the request.
    """

    def __init__(self, request_id: str, *, stream: bool, abort: Callable[[RequestHandle], None]) -> None:
        self.request_id = request_id
        self.stream = stream
        self.arrived = time.monotonic()
        self._abort = abort
        self._changed = threading.Condition()
        self._output: RequestOutput | None = None
        self._version = 0
        self._done = False
        self._watchers: list[Callable[[], None]] = []

    def abort(self) -> None:
        """End the request; what it generated so far is its result, with finish reason ``abort``."""
        self._abort(self)

    @property
    def done(self) -> bool:
        return self._done

    def push(self, output: RequestOutput) -> None:
        """Called by the engine's thread: a newer output of this request."""
        with self._changed:
            if self._done:
                return
            self._output, self._version = output, self._version + 1
            self._done = output.finished
            self._changed.notify_all()
            watchers = tuple(self._watchers)
        for watcher in watchers:
            watcher()

    def wait(self, timeout: float | None = None) -> RequestOutput | None:
        """The final output with its ``error``, if any; None after ``timeout`` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._done, timeout)
            return self._output if self._done else None

    def result(self, timeout: float | None = None) -> RequestOutput:
        """The final output. Raises the request's error, or `TimeoutError`."""
        output = self.wait(timeout)
        if output is None:
            raise TimeoutError(f"request {self.request_id} is not finished after {timeout} s")
        return _checked(output)

    def __iter__(self) -> Iterator[RequestOutput]:
        seen = 0
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda seen=seen: self._version > seen)  # type: ignore[misc]
                    seen, output, done = self._version, self._output, self._done
                assert output is not None
                yield _checked(output)
                if done:
                    return
        finally:
            if not self._done:
                self.abort()

    def __await__(self) -> Generator[None, None, RequestOutput]:
        return self._finished().__await__()

    async def _finished(self) -> RequestOutput:
        async for output in self:
            if output.finished:
                return output
        raise RequestError(f"request {self.request_id} ended without an output")

    async def __aiter__(self) -> AsyncIterator[RequestOutput]:
        loop, signal = asyncio.get_running_loop(), asyncio.Event()

        def watcher() -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody watches any more
                loop.call_soon_threadsafe(signal.set)

        with self._changed:
            self._watchers.append(watcher)
        seen = 0
        try:
            while True:
                signal.clear()
                with self._changed:
                    version, output, done = self._version, self._output, self._done
                if version == seen:
                    await signal.wait()
                    continue
                seen = version
                assert output is not None
                yield _checked(output)
                if done:
                    return
        finally:
            with self._changed:
                self._watchers.remove(watcher)
            if not self._done:
                self.abort()


def _checked(output: RequestOutput) -> RequestOutput:
    if output.error is not None:
        raise output.error
    return output
