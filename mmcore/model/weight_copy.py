"""Copies weights to a device while they are read: several threads, each with its own buffers.

A tensor is cut into pieces. A thread reads a piece from its file into memory, pinned for a GPU, and queues
its copy; meanwhile it reads the next piece, of the same tensor or another, into its other buffer.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from mmcore.model.weight_file import StoredTensor

PIECE_BYTES = 16 << 20


def _threads() -> int:
    return max(2, min(12, os.cpu_count() or 1))


class _Lane:
    """One thread's two buffers, and on a GPU its stream and what is still reading each buffer."""

    def __init__(self, device: torch.device, piece_bytes: int) -> None:
        self._device = device
        on_gpu = device.type == "cuda"
        self._buffers = torch.empty((2, piece_bytes), dtype=torch.uint8, pin_memory=on_gpu)
        self._stream = torch.cuda.Stream(device) if on_gpu else None  # type: ignore[no-untyped-call]
        self._busy: list[torch.cuda.Event | None] = [None, None]
        self._turn = 0

    def copy(self, target: Tensor, stored: StoredTensor, offset: int) -> None:
        """``target`` [n] on the device takes n elements of ``stored`` from its byte ``offset`` on."""
        self._turn ^= 1
        busy = self._busy[self._turn]
        if busy is not None:
            busy.synchronize()
        piece = self._buffers[self._turn, : len(target) * stored.dtype.itemsize]
        stored.read_into(piece.numpy().data, offset)
        source = piece.view(stored.dtype)
        if self._stream is None:
            target.copy_(source)
            return
        with torch.cuda.stream(self._stream):
            if source.dtype != target.dtype:  # converted there: the host has enough to do
                source = source.to(self._device, non_blocking=True)
            target.copy_(source, non_blocking=True)
            self._busy[self._turn] = self._stream.record_event()

    def finish(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()


class WeightCopier:
    """Fills parameters in the background; leaving its ``with`` waits, and raises what went wrong."""

    def __init__(
        self, device: torch.device, *, threads: int | None = None, piece_bytes: int = PIECE_BYTES
    ) -> None:
        self._device = device
        self._piece_bytes = piece_bytes
        self._pool = ThreadPoolExecutor(threads or _threads(), thread_name_prefix="mmcore-weights")
        self._local = threading.local()
        self._lanes: list[_Lane] = []
        self._jobs: list[Future[None]] = []
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # what was written before stays before

    def copy(self, rows: Tensor, stored: StoredTensor) -> None:
        """Queue it; ``rows``, contiguous on the device, have as many elements."""
        target, size = rows.view(-1), stored.dtype.itemsize
        step = self._piece_bytes // size
        for start in range(0, len(target), step):
            piece = target[start : start + step]
            self._jobs.append(self._pool.submit(self._run, piece, stored, start * size))

    @torch.inference_mode()  # which may write into tensors of either kind; a thread is told anew
    def _run(self, target: Tensor, stored: StoredTensor, offset: int) -> None:
        if not hasattr(self._local, "lane"):
            self._local.lane = _Lane(self._device, self._piece_bytes)
            self._lanes.append(self._local.lane)
        self._local.lane.copy(target, stored, offset)

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
