"""Runs items through the encoder and holds their rows by cache entry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from mmcore.adapter import Encoder
from mmcore.errors import EncoderOutputError, MMCoreError, RequestError
from mmcore.request import EncoderInput, ItemPlan, ReadyRows
from mmcore.runner.encoder_graph import EncoderGraphs

T = TypeVar("T")
ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""For towers that ask torch: all but cuDNN's, which makes a plan for each new shape while a step waits."""


@dataclass(frozen=True, eq=False, slots=True)
class EncodeJob:
    """One item to encode into one cache entry."""

    entry: int
    label: str
    plan: ItemPlan
    input: EncoderInput | ReadyRows


@dataclass(frozen=True, eq=False, slots=True)
class EncodeResult:
    """Errors known by now, and by entry what must turn out to be true, with the error if it does not."""

    failed: Mapping[int, MMCoreError]
    finite: Mapping[int, tuple[Tensor, MMCoreError]]


class EncoderRunner:
    """Rows of every live encoder cache entry, and which entry each slot's item reads."""

    def __init__(
        self,
        encoder: Encoder,
        module: nn.Module,
        device: torch.device,
        dtype: torch.dtype,
        *,
        graphs: bool = True,
    ) -> None:
        self._encoder = encoder
        self.graphs = EncoderGraphs(module, device, graphs=graphs)
        self._device = device
        self._dtype = dtype
        self._inputs: dict[tuple[str, int], EncoderInput] = {}
        self._rows: dict[int, Tensor] = {}
        self._bound: dict[tuple[int, int], int] = {}

    @property
    def num_inputs(self) -> int:
        return len(self._inputs)

    def feed(self, request_id: str, item: int, data: EncoderInput) -> None:
        """Keep a preprocessed item until its request ends, so that a preemption can encode it again."""
        self._inputs[request_id, item] = data

    def forget(self, request_id: str, num_items: int) -> None:
        for item in range(num_items):
            self._inputs.pop((request_id, item), None)

    def input(self, request_id: str, item: int) -> EncoderInput:
        return self._inputs[request_id, item]

    def free(self, entries: Sequence[int]) -> None:
        """Drop rows. An entry whose encoding failed has none."""
        for entry in entries:
            self._rows.pop(entry, None)

    def bind(self, slot: int, item: int, entry: int) -> None:
        self._bound[slot, item] = entry

    def unbind(self, slot: int, num_items: int) -> None:
        for item in range(num_items):
            self._bound.pop((slot, item), None)

    def rows(self, slot: int, item: int) -> Tensor | None:
        """Rows that the slot's item reads, [rows, width]; None where its encoding raised an error."""
        return self._rows.get(self._bound[slot, item])

    def encode(self, jobs: Sequence[EncodeJob]) -> EncodeResult:
        """Encode one batch. Where the batch fails, each item is tried alone."""
        try:
            return EncodeResult({}, self._encode_batch(jobs))
        except torch.AcceleratorError:
            raise
        except (Exception, SystemExit) as error:  # a family's code: whatever it raises fails its items alone
            if len(jobs) == 1:
                return EncodeResult({jobs[0].entry: _as_request_error(jobs[0], error)}, {})
        parts = [self.encode([job]) for job in jobs]
        return EncodeResult(_together(part.failed for part in parts), _together(p.finite for p in parts))

    def _encode_batch(self, jobs: Sequence[EncodeJob]) -> Mapping[int, tuple[Tensor, MMCoreError]]:
        """A non-finite output is an error of its request: the scheduler never lets anyone else read it."""
        computed = [job for job in jobs if isinstance(job.input, EncoderInput)]
        parts = dict(zip((job.entry for job in computed), self._forward(computed), strict=True))
        for job in jobs:
            if isinstance(job.input, ReadyRows):
                parts[job.entry] = self._sent(job.input.rows)
        self._rows |= parts
        return {job.entry: (parts[job.entry].isfinite().all(), self._not_finite(job)) for job in jobs}

    def _forward(self, jobs: Sequence[EncodeJob]) -> Sequence[Tensor]:
        if not jobs:
            return ()
        inputs = [job.input for job in jobs if isinstance(job.input, EncoderInput)]
        plans = [job.plan for job in jobs]
        with sdpa_kernel(ATTENTION):
            rows = self.graphs.run(self.send(self._encoder.collate(inputs, plans)))
        expected = (sum(plan.rows for plan in plans), plans[0].width)
        if tuple(rows.shape) != expected:
            raise EncoderOutputError(
                f"the encoder gave {tuple(rows.shape)} for planned rows x width {expected}; "
                "the adapter's measure() and encoder disagree"
            )
        parts = torch.split(rows, [plan.rows for plan in plans])
        return tuple(part.clone() for part in parts)

    def send(self, arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
        """Collated inputs on the device, floats in the model's dtype. Waits for nothing."""
        return {name: self._sent(array) for name, array in arrays.items()}

    def _sent(self, array: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
        dtype = self._dtype if tensor.is_floating_point() else tensor.dtype
        if self._device.type == "cpu":
            return tensor.to(dtype)
        pinned = torch.empty(tensor.shape, dtype=dtype, pin_memory=True).copy_(tensor)
        return pinned.to(self._device, non_blocking=True)

    def _not_finite(self, job: EncodeJob) -> MMCoreError:
        return EncoderOutputError(
            f"{job.label}: the encoder's output is not finite in {self._dtype}; try dtype='float32'"
        )


def _together(parts: Iterable[Mapping[int, T]]) -> dict[int, T]:
    return {entry: value for part in parts for entry, value in part.items()}


def _as_request_error(job: EncodeJob, error: BaseException) -> MMCoreError:
    if isinstance(error, MMCoreError):
        return error
    if isinstance(error, torch.OutOfMemoryError):
        return RequestError(
            f"{job.label}: no device memory to encode {job.plan.rows} rows; lower free_gpu_memory_fraction "
            "or send a smaller item"
        )
    return RequestError(f"{job.label}: the encoder failed: {type(error).__name__}: {error}")
