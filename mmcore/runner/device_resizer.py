"""Large pictures resized on the device, beside the steps: what a core does in 20 ms takes it 1."""

from __future__ import annotations

from collections.abc import Sequence
from threading import local
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mmcore.kernels.resample import resample


class Pass(Protocol):
    """Pixels along ``axis`` as sums of their neighbours: `mmcore.kernels.resample`."""

    @property
    def axis(self) -> int: ...
    @property
    def first(self) -> NDArray[np.int32]: ...
    @property
    def weights(self) -> NDArray[np.int32]: ...


class DeviceResizer:
    """Thread-safe: each thread has a stream of its own, and waits for that alone."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._local = local()

    @torch.inference_mode()
    def __call__(self, image: NDArray[np.uint8], passes: Sequence[Pass]) -> NDArray[np.uint8]:
        """uint8 [H, W, C] through all passes."""
        with torch.cuda.stream(self._stream()):
            levels = self._send(image)
            for one in passes:
                levels = _along(levels, one.axis, self._send(one.first), self._send(one.weights))
            found: NDArray[np.uint8] = levels.cpu().numpy()
        return found

    def _stream(self) -> torch.cuda.Stream | None:
        if self._device.type != "cuda":
            return None
        if not hasattr(self._local, "stream"):
            self._local.stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        return self._local.stream  # type: ignore[no-any-return]

    def _send(self, array: NDArray[np.int32] | NDArray[np.uint8]) -> Tensor:
        """By pinned memory, which torch keeps until the copy is done."""
        kind = torch.uint8 if array.dtype == np.uint8 else torch.int32
        host = torch.empty(array.shape, dtype=kind, pin_memory=self._device.type == "cuda")
        host.numpy()[...] = array
        return host.to(self._device, non_blocking=True)


def _along(levels: Tensor, axis: int, first: Tensor, weights: Tensor) -> Tensor:
    height, width, channels = levels.shape
    if axis == 1:
        return resample(levels, first, weights)
    flat = resample(levels.view(1, height, width * channels), first, weights)
    return flat.view(len(first), width, channels)
