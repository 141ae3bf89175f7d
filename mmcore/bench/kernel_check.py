"""Does every kernel compile for this device, and compute what torch does? Small inputs, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from mmcore.bench.attention_cells import PagedCell, SegmentCell
from mmcore.bench.kernel_cell import Cell
from mmcore.bench.row_cells import PAIRS, ChoiceCell, LinearCell, RowCell

ROUGH = 0.05
"""Share of the largest value by which half precision may be off: a wrong result is off by all of it."""


@dataclass(frozen=True, slots=True)
class KernelFault:
    """Why a kernel cannot be used here; empty where it can."""

    kernel: str
    reason: str


def small_cells() -> tuple[Cell, ...]:
    """Each kernel once or twice."""
    rows = (RowCell(name, 5, 1024) for name in PAIRS)
    return (
        PagedCell(3, 1, 700, heads=(4, 2), size=64),
        PagedCell(2, 70, 70, heads=(4, 2), size=64),
        SegmentCell(2, 70, 2, 64),
        LinearCell(1, 256, 128),
        LinearCell(2, 256, 128, gated=True),
        ChoiceCell(2, 1000),
        *rows,
    )


def check_kernels(device: torch.device) -> Iterator[KernelFault]:
    """One record a cell. A fault of the device ends it: nothing can be learned after it."""
    for cell in small_cells():
        try:
            reason = _difference(cell, device)
        except torch.AcceleratorError as error:
            yield KernelFault(cell.kernel, _told(error))
            return
        except Exception as error:  # a compiler's, whatever it is
            reason = _told(error)
        yield KernelFault(cell.kernel, reason)


def _difference(cell: Cell, device: torch.device) -> str:
    sides = cell.sides(device, cold_bytes=1)
    ours, theirs = (_parts(calls[0]()) for calls in (sides.ours, sides.theirs))
    for mine, wanted in zip(ours, theirs, strict=True):
        if not mine.is_floating_point():
            continue  # which of equal values is the likeliest is nobody's promise but ours
        off = float((mine.float() - wanted.float()).abs().max())
        if not off <= ROUGH * float(wanted.float().abs().max()):
            return f"is off by {off:.3g} from torch at {cell.shape}"
    return ""


def _parts(answer: Tensor | tuple[Tensor, ...] | list[Tensor]) -> list[Tensor]:
    return [answer] if isinstance(answer, Tensor) else list(answer)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}"


def graph_fault(device: torch.device) -> str:
    """Why a step of such kernels cannot be captured and replayed; empty where it can."""
    from mmcore.runner.graph_recorder import GraphRecorder

    calls = [LinearCell(2, 256, 128).sides(device, 1).ours[0], ChoiceCell(2, 1000).sides(device, 1).ours[0]]
    try:
        replay = GraphRecorder(device).record(lambda: [call() for call in calls])
        first = replay()[1][1].clone()
        same = torch.equal(first, replay()[1][1])
    except Exception as error:  # whatever stops a capture
        return _told(error)
    return "" if same else "two replays differ"
