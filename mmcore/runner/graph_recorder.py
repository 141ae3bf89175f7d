"""Captures work into CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import torch

T = TypeVar("T")


class GraphRecorder:
    """Captures on one stream of its own into one pool of memory, so that its graphs share their scratch."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, work: Callable[[], T]) -> Callable[[], T]:
        """What replays ``work``; it gives the same tensors each time. Raises whatever stops the capture."""
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._stream):
            work()  # compiles kernels, which a capture cannot
            self._stream.synchronize()
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                result = work()
            except BaseException:
                with suppress(RuntimeError):  # the first error says more than that the capture is void
                    graph.capture_end()
                raise
            graph.capture_end()
        current.wait_stream(self._stream)

        def replay() -> T:
            graph.replay()
            return result

        return replay
