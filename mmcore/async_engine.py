"""The engine on a thread of its own: requests go in from anywhere, outputs come back through handles."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from queue import Empty, SimpleQueue

from mmcore.engine import Engine, StepReport
from mmcore.errors import EngineError, InputError, MMCoreError, RequestAbortedError, RequestError
from mmcore.inputs.threads import CallPool
from mmcore.output_processor import FinishedRequest
from mmcore.request import FinishReason, PreparedRequest, RequestOutput
from mmcore.request_handle import RequestHandle
from mmcore.request_log import log_finished, log_received

logger = logging.getLogger(__name__)

THREAD_PREFIX = "mmcore-"
"""Names of all threads that an engine owns start so."""

GATHER_SECONDS = 0.1
"""How long a first step that is no work yet waits at most for prompts that are being prepared."""

_ABORTED = "the request was aborted before it started"

Prepare = Callable[[], PreparedRequest]


class AsyncEngine:
    """Owns the engine's thread and the threads that prepare requests."""

    def __init__(self, engine: Engine, *, prepare_workers: int) -> None:
        self._engine = engine
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._handles: dict[str, RequestHandle] = {}
        self._between: dict[str, RequestOutput] = {}
        """Of chains whose next link is being prepared: what they have so far."""
        self._wake = engine.wake
        self._closing = False
        self._failure: EngineError | None = None
        self._lock = threading.Lock()
        self._preparers = CallPool(prepare_workers, f"{THREAD_PREFIX}prepare")
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
            self._preparers.submit(lambda: self._prepare(handle, prepare, None))
        log_received(request_id)

    def shutdown(self) -> None:
        """Abort what runs, end all threads but those that hang in a plugin's code. May be called twice.

        One of mmcore's own threads, on which an unreachable `LLM` may be collected, does not wait for them.
        """
        wait = not threading.current_thread().name.startswith(THREAD_PREFIX)
        with self._lock:
            self._closing = True
        self._wake.set()
        self._preparers.close(wait=wait)
        if wait:
            self._thread.join()

    def _request_abort(self, handle: RequestHandle) -> None:
        self._post(lambda: self._abort(handle))

    def _post(self, command: Callable[[], None]) -> None:
        self._inbox.put(command)
        self._wake.set()

    def _prepare(self, handle: RequestHandle, prepare: Prepare, earlier: FinishedRequest | None) -> None:
        try:
            prepared = prepare()
        except BaseException as error:  # nobody looks at what a pool's thread raises
            failed = _told(error, "preparing", handle)
            self._post(lambda: self._fail(handle, failed))
        else:
            self._post(lambda: self._add(handle, prepared, earlier))

    # -------------------------------------------------------------- the engine's thread

    def _run(self) -> None:
        try:
            while not self._closing:
                self._wake.clear()
                self._drain()
                if not self._engine.has_unfinished:
                    self._wake.wait()
                    continue
                self._gather()
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

    def _gather(self) -> None:
        """Where nothing runs yet, let prompts that come at the same time into one first step."""
        until = time.monotonic() + GATHER_SECONDS
        while not (self._closing or self._engine.is_running) and self._engine.pipeline.turn.is_wanted:
            left = until - time.monotonic()
            if left <= 0 or not self._engine.has_unfinished or self._engine.is_worth_a_step:
                return
            self._wake.wait(timeout=min(left, 0.005))
            self._wake.clear()
            self._drain()

    def _drain(self) -> None:
        while True:
            try:
                command = self._inbox.get_nowait()
            except Empty:
                return
            command()

    def _add(self, handle: RequestHandle, prepared: PreparedRequest, earlier: FinishedRequest | None) -> None:
        if handle.done or handle.request_id not in self._handles:
            return
        self._between.pop(handle.request_id, None)
        try:
            self._engine.add(prepared, earlier, handle.arrived)
        except BaseException as error:  # a tokenizer's native code raises no Exception
            self._fail(handle, _told(error, "adding", handle))

    def _abort(self, handle: RequestHandle) -> None:
        if handle.request_id in self._engine:
            self._publish(self._engine.abort(handle.request_id))
        elif handle.request_id in self._between:
            self._finish(_ended(self._between[handle.request_id], "abort"))
        elif handle.request_id in self._handles:
            self._finish(_unstarted(handle.request_id, RequestAbortedError(_ABORTED)))

    def _fail(self, handle: RequestHandle, error: MMCoreError) -> None:
        if handle.request_id in self._engine:
            self._publish(self._engine.abort(handle.request_id, error))
        elif handle.request_id in self._handles:
            self._finish(_unstarted(handle.request_id, error))

    def _publish(self, report: StepReport) -> None:
        for request_id in report.changed:
            handle = self._handles.get(request_id)
            if handle is not None and handle.stream and request_id in self._engine:
                handle.push(self._engine.output(request_id))
        for finished in report.finished:
            handle = self._handles.get(finished.output.request_id)
            if handle is not None and finished.follow_up is not None:
                self._continue(handle, finished)
            else:
                self._finish(finished.output)

    def _continue(self, handle: RequestHandle, finished: FinishedRequest) -> None:
        """Run the next link of the request's chain under the same handle."""
        pipeline, follow_up = self._engine.pipeline, finished.follow_up
        assert follow_up is not None
        self._between[handle.request_id] = finished.output
        if handle.stream:
            handle.push(replace(_ended(finished.output, None), finished=False))
        with self._lock:
            if not self._closing:  # else the handle ends with all others
                self._preparers.submit(
                    lambda: self._prepare(
                        handle, lambda: pipeline.prepare_follow_up(finished.prepared, follow_up), finished
                    )
                )

    def _finish(self, output: RequestOutput) -> None:
        self._between.pop(output.request_id, None)
        handle = self._handles.pop(output.request_id, None)
        if handle is not None:
            handle.push(output)
            log_finished(output)

    def _end_all(self, error: EngineError) -> None:
        for request_id in tuple(self._handles):
            self._finish(_unstarted(request_id, error))


def _told(error: BaseException, action: str, handle: RequestHandle) -> MMCoreError:
    """What the request's caller is told; what nobody expected goes into the log as it was raised."""
    if isinstance(error, MMCoreError):
        return _bare(error)
    logger.error("%s failed", action, exc_info=error, extra={"request_id": handle.request_id})
    return RequestError(f"{action} the request failed ({type(error).__name__})")


def _bare(error: MMCoreError) -> MMCoreError:
    """The error without the frames that raised it and its causes: they would keep pixels alive."""
    link: BaseException | None = error
    while link is not None and link.__traceback__ is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return error


def _ended(output: RequestOutput, reason: FinishReason | None) -> RequestOutput:
    """What a chain has between two links, whose own ends say nothing of the whole."""
    outputs = tuple(replace(one, finish_reason=reason, stop_reason=None) for one in output.outputs)
    return replace(output, outputs=outputs)


def _unstarted(request_id: str, error: MMCoreError) -> RequestOutput:
    """The output of a request that never reached the scheduler."""
    return RequestOutput(request_id=request_id, prompt_token_ids=(), outputs=(), finished=True, error=error)
