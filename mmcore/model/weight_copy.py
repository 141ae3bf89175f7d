"""Copies weights to a device while they are read: several threads, each with its own pinned buffers.

A memory-mapped tensor is read when it is touched. Each thread touches a piece, which lands in pinned memory,
and queues its copy; meanwhile it reads the next piece into its other buffer.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

THREADS = 8
PIECE_BYTES = 32 << 20


class _Lane:
    """One thread's two buffers, and on a GPU its stream and what is still reading each buffer."""

    def __init__(self, device: torch.device, piece_bytes: int) -> None:
        self._on_gpu = device.type == "cuda"
        self._buffers = torch.empty((2, piece_bytes), dtype=torch.uint8, pin_memory=self._on_gpu)
        self._stream = torch.cuda.Stream(device) if self._on_gpu else None  # type: ignore[no-untyped-call]
        self._busy: list[torch.cuda.Event | None] = [None, None]
        self._turn = 0

    def copy(self, rows: Tensor, tensor: Tensor) -> None:
        """``rows`` on the device, contiguous, take ``tensor`` of the same size from the host."""
        source = tensor.to(rows.dtype).contiguous().view(-1)
        target, step = rows.view(-1), self._buffers.shape[1] // rows.dtype.itemsize
        for start in range(0, len(source), step):
            self._copy_piece(target[start : start + step], source[start : start + step])

    def _copy_piece(self, target: Tensor, source: Tensor) -> None:
        self._turn ^= 1
        busy = self._busy[self._turn]
        if busy is not None:
            busy.synchronize()
        buffer = self._buffers[self._turn, : source.nbytes].view(source.dtype)
        buffer.copy_(source)
        if self._stream is None:
            target.copy_(buffer)
            return
        with torch.cuda.stream(self._stream):
            target.copy_(buffer, non_blocking=True)
            self._busy[self._turn] = self._stream.record_event()

    def finish(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()


class WeightCopier:
    """Fills parameters in the background; leaving its ``with`` waits, and raises what went wrong."""

    def __init__(
        self, device: torch.device, *, threads: int = THREADS, piece_bytes: int = PIECE_BYTES
    ) -> None:
        self._device = device
        self._piece_bytes = piece_bytes
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="mmcore-weights")
        self._local = threading.local()
        self._lanes: list[_Lane] = []
        self._jobs: list[Future[None]] = []
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # what was written before stays before

    def copy(self, rows: Tensor, tensor: Tensor) -> None:
        """Queue it; shapes are equal."""
        self._jobs.append(self._pool.submit(self._run, rows, tensor))

    def _run(self, rows: Tensor, tensor: Tensor) -> None:
        if not hasattr(self._local, "lane"):
            self._local.lane = _Lane(self._device, self._piece_bytes)
            self._lanes.append(self._local.lane)
        self._local.lane.copy(rows, tensor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            for job in self._jobs if error is None else ():
                job.result()
        finally:
            self._pool.shutdown(cancel_futures=True)
        for lane in self._lanes:
            lane.finish()
