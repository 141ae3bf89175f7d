"""The engine on a thread of its own: requests go in from anywhere, outputs come back through handles."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue

from mmcore.adapter import FollowUp
from mmcore.engine import Engine, StepReport
from mmcore.errors import EngineError, InputError, MMCoreError, RequestAbortedError, RequestError
from mmcore.request import PreparedRequest, RequestOutput, Result

logger = logging.getLogger(__name__)

THREAD_PREFIX = "mmcore-"
"""Names of all threads that an engine owns start so."""

_ABORTED = "the request was aborted before it started"

Prepare = Callable[[], PreparedRequest]


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


class AsyncEngine:
    """Owns the engine's thread and the threads that prepare requests."""

    def __init__(self, engine: Engine, *, prepare_workers: int) -> None:
        self._engine = engine
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._handles: dict[str, RequestHandle] = {}
        self._wake = engine.wake
        self._closing = False
        self._failure: EngineError | None = None
        self._lock = threading.Lock()
        self._preparers = ThreadPoolExecutor(prepare_workers, thread_name_prefix=f"{THREAD_PREFIX}prepare")
        self._thread = threading.Thread(target=self._run, name=f"{THREAD_PREFIX}engine", daemon=True)
        self._thread.start()

    # -------------------------------------------------------------- any thread

    def submit(self, request_id: str, prepare: Prepare, *, stream: bool = False) -> RequestHandle:
        """Prepare a request off the engine's thread and run it.

        Raises `EngineError` once closed, `InputError` where the id is that of a request under way.
        """
        handle = RequestHandle(request_id, stream=stream, abort=self._request_abort)
        try:
            self._start(handle, prepare)
        except BaseException:  # Ctrl-C may come in the middle of it
            if self._handles.get(request_id) is handle:
                handle.abort()
            raise
        return handle

    def _start(self, handle: RequestHandle, prepare: Prepare) -> None:
        request_id = handle.request_id
        with self._lock:
            if self._failure is not None:
                raise EngineError(str(self._failure))
            if self._closing:
                raise EngineError("the engine is shut down; make a new LLM")
            if request_id in self._handles:
                raise InputError(f"request id {request_id!r} is in use; choose another until it has ended")
            self._handles[request_id] = handle
            self._preparers.submit(self._prepare, handle, prepare, None)

    def shutdown(self) -> None:
        """Abort what runs, end all threads. May be called twice.

        One of mmcore's own threads, on which an unreachable `LLM` may be collected, does not wait for them.
        """
        wait = not threading.current_thread().name.startswith(THREAD_PREFIX)
        with self._lock:
            self._closing = True
        self._wake.set()
        self._preparers.shutdown(wait=wait, cancel_futures=True)
        if wait:
            self._thread.join()

    def _request_abort(self, handle: RequestHandle) -> None:
        self._post(lambda: self._abort(handle))

    def _post(self, command: Callable[[], None]) -> None:
        self._inbox.put(command)
        self._wake.set()

    def _prepare(self, handle: RequestHandle, prepare: Prepare, previous: Result | None) -> None:
        try:
            prepared = prepare()
        except MMCoreError as error:
            failed = _bare(error)
        except BaseException as error:  # nobody looks at what a pool's thread raises
            logger.exception("preparing request %s failed", handle.request_id)
            failed = RequestError(f"preparing the request failed ({type(error).__name__})")
        else:
            self._post(lambda: self._add(handle, prepared, previous))
            return
        self._post(lambda: self._fail(handle, failed))

    # -------------------------------------------------------------- the engine's thread

    def _run(self) -> None:
        try:
            while not self._closing:
                self._wake.clear()
                self._drain()
                if not self._engine.has_unfinished:
                    self._wake.wait()
                    continue
                report = self._engine.step()
                self._publish(report)
                if report.idle:
                    self._wake.wait(timeout=report.wait_seconds)
            self._end_all(EngineError("the engine was shut down before the request finished"))
        except BaseException as error:
            logger.exception("the engine failed")
            failure = EngineError(f"the engine failed: {type(error).__name__}: {error}")
            with self._lock:
                self._failure = failure
            self._end_all(failure)
        finally:
            self._engine.close()

    def _drain(self) -> None:
        while True:
            try:
                command = self._inbox.get_nowait()
            except Empty:
                return
            command()

    def _add(self, handle: RequestHandle, prepared: PreparedRequest, previous: Result | None) -> None:
        if handle.done or handle.request_id not in self._handles:
            return
        try:
            self._engine.add(prepared, previous, handle.arrived)
        except MMCoreError as error:
            self._fail(handle, error)

    def _abort(self, handle: RequestHandle) -> None:
        if handle.request_id in self._engine:
            self._publish(self._engine.abort(handle.request_id))
        elif handle.request_id in self._handles:
            self._finish(_unstarted(handle.request_id, RequestAbortedError(_ABORTED)))

    def _fail(self, handle: RequestHandle, error: MMCoreError) -> None:
        if handle.request_id in self._handles:
            self._finish(_unstarted(handle.request_id, error))

    def _publish(self, report: StepReport) -> None:
        for request_id in report.changed:
            handle = self._handles.get(request_id)
            if handle is not None and handle.stream and request_id in self._engine:
                handle.push(self._engine.output(request_id))
        for finished in report.finished:
            handle = self._handles.get(finished.output.request_id)
            if handle is not None and finished.follow_up is not None and finished.result is not None:
                self._continue(handle, finished.prepared, finished.follow_up, finished.result)
            else:
                self._finish(finished.output)

    def _continue(
        self, handle: RequestHandle, prepared: PreparedRequest, follow_up: FollowUp, result: Result
    ) -> None:
        """Run the next link of the request's chain under the same handle."""
        pipeline = self._engine.pipeline
        with self._lock:
            if not self._closing:  # else the handle ends with all others
                self._preparers.submit(
                    self._prepare, handle, lambda: pipeline.prepare_follow_up(prepared, follow_up), result
                )

    def _finish(self, output: RequestOutput) -> None:
        handle = self._handles.pop(output.request_id, None)
        if handle is not None:
            handle.push(output)

    def _end_all(self, error: EngineError) -> None:
        for request_id in tuple(self._handles):
            self._finish(_unstarted(request_id, error))


def _bare(error: MMCoreError) -> MMCoreError:
    """The error without the frames that raised it and its causes: they would keep pixels alive."""
    link: BaseException | None = error
    while link is not None and link.__traceback__ is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return error


def _unstarted(request_id: str, error: MMCoreError) -> RequestOutput:
    """The output of a request that never reached the scheduler."""
    return RequestOutput(request_id=request_id, prompt_token_ids=(), outputs=(), finished=True, error=error)
