"""A step that was handed to the device and has not come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mmcore.core.output import ModelRunnerOutput
from mmcore.errors import MMCoreError, RequestError
from mmcore.request import PreparedRequest
from mmcore.runner.batch import BatchTable, SampledPlaces, StepInputs
from mmcore.runner.sampling_table import SampledTokens, host_scores
from mmcore.runner.transfer import HostCopy

Errors = dict[int, MMCoreError]
"""By slot."""


@dataclass(frozen=True, eq=False, slots=True)
class Check:
    """What must be true of a step's values, or else the requests in ``slots`` fail with ``error``."""

    holds: Tensor  # bool, no dimension
    error: MMCoreError
    slots: tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True)
class SampledRows:
    """The rows of a step that sample, whose they are, and where in ``table`` their tokens go."""

    inputs: StepInputs
    tokens: SampledTokens
    requests: Sequence[PreparedRequest]
    table: BatchTable
    places: SampledPlaces


class PendingStep:
    """`result` waits for the device; until then nobody does."""

    def __init__(
        self,
        step: int,
        num_rows: int,
        errors: Errors,
        checks: Sequence[Check] = (),
        rows: SampledRows | None = None,
    ) -> None:
        self._step = step
        self._num_rows = num_rows
        self._errors = errors
        self._checks = checks
        self._rows = rows
        tensors = {} if rows is None else dict(rows.tokens.tensors())
        if checks:
            tensors["checks"] = torch.stack([check.holds for check in checks])
        self._copy = HostCopy(tensors) if tensors else None

    def result(self) -> ModelRunnerOutput:
        """What the step gave. A fault of one request is its own entry in ``errors``."""
        arrays = self._copy.wait() if self._copy is not None else {}
        errors = dict(self._errors)
        for check, holds in zip(self._checks, arrays.pop("checks", ()), strict=True):
            for slot in () if holds else check.slots:
                errors.setdefault(slot, check.error)
        if self._rows is not None:
            return self._sampled(self._rows, arrays, errors)
        return ModelRunnerOutput(step=self._step, token_counts=[0] * self._num_rows, errors=errors)

    def _sampled(
        self, rows: SampledRows, arrays: Mapping[str, NDArray[Any]], errors: Errors
    ) -> ModelRunnerOutput:
        ids: NDArray[np.int64] = arrays["token_ids"]
        rows.table.fill(rows.places, rows.tokens.decided(ids))
        slots = rows.inputs.sample_slots.tolist()
        for index in np.flatnonzero(~np.isfinite(arrays["logits"])).tolist():
            errors.setdefault(slots[index], _not_finite(rows.requests[index]))
        kept = np.ones(len(slots), bool)
        if errors:
            kept[[index for index, slot in enumerate(slots) if slot in errors]] = False
        if rows.tokens.undecided:
            kept[list(rows.tokens.undecided)] = False
        counts = np.zeros(self._num_rows, np.int64)
        counts[rows.inputs.sample_rows] = kept
        return ModelRunnerOutput(
            step=self._step,
            token_counts=counts.tolist(),
            token_ids=ids[kept].tolist(),
            logprobs=host_scores(rows.inputs, rows.tokens, arrays, errors),
            errors=errors,
        )


def _not_finite(request: PreparedRequest) -> RequestError:
    return RequestError(
        f"request {request.request_id}: the logits are not finite in this dtype; try dtype='float32'"
    )
