"""What `mmcore bench kernels` times: both sides of a cell compute the same, over data of their own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mmcore.bench.attention_cells import PagedCell, SegmentCell, attention_cells
from mmcore.bench.kernel_cell import Ceilings, Cell, cold_sets
from mmcore.bench.kernel_times import KernelTime, kernel_table
from mmcore.bench.row_cells import PAIRS, ChoiceCell, LinearCell, RowCell, row_cells
from mmcore.kernels.dispatch import operations

CPU = torch.device("cpu")
SMALL: list[Cell] = [
    PagedCell(3, 1, 40, heads=(4, 2), size=16),
    PagedCell(2, 7, 7, heads=(4, 4), size=16, block=4),
    PagedCell(2, 1, 33, heads=(2, 2), size=16, causal=False),
    SegmentCell(3, 10, 2, 16),
    LinearCell(2, 24, 16),
    LinearCell(2, 24, 16, gated=True),
    ChoiceCell(3, 50),
    *(RowCell(name, 6, 1024) for name in PAIRS),
]


def parts(answer: Tensor | tuple[Tensor, ...] | list[Tensor]) -> list[Tensor]:
    return [answer] if isinstance(answer, Tensor) else list(answer)


@pytest.mark.parametrize("cell", SMALL, ids=str)
def test_both_sides_compute_the_same(cell: Cell) -> None:
    """`store_kv` leaves what it does not write as it was."""
    sides = cell.sides(CPU, cold_bytes=1 << 14)
    assert len(sides.ours) == len(sides.theirs) >= 1
    for ours, theirs in zip(sides.ours, sides.theirs, strict=True):
        mine, wanted = ([x.clone() for x in parts(call())] for call in (ours, theirs))
        for a, b in zip(mine, wanted, strict=True):
            torch.testing.assert_close(a, b.to(a.dtype), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("cell", [PagedCell(2, 1, 64), RowCell("swiglu", 4, 256)], ids=str)
def test_each_call_has_data_of_its_own(cell: Cell) -> None:
    first, second = (parts(call())[0].clone() for call in cell.sides(CPU, cold_bytes=1 << 20).ours[:2])
    assert not torch.equal(first, second)


def test_floors_are_bytes_or_operations_whichever_takes_longer() -> None:
    limits = Ceilings(read=1e12, copy=5e11, math=1e14)
    decode = PagedCell(8, 1, 1000, heads=(28, 4), size=128)
    assert decode.floor(limits) == pytest.approx(8 * 1000 * 4 * 128 * 2 * 2 / 1e12)
    prefill = PagedCell(1, 1000, 1000, heads=(28, 4), size=128)
    assert prefill.floor(limits) == pytest.approx(4 * 28 * 128 * 1000 * 1001 / 2 / 1e14)
    assert RowCell("rms_norm", 10, 100).floor(limits) == pytest.approx(4 * 2 * 1000 / 5e11)


def test_cold_sets() -> None:
    assert cold_sets(100, 1000) == 10
    assert cold_sets(10_000, 1000) == 1
    assert cold_sets(10_000, 1000, least=2) == 2
    assert cold_sets(1, 1000) == 64


def test_the_cells_are_of_operations_that_there_are() -> None:
    timed = {cell.kernel for cell in (*attention_cells(), *row_cells())}
    assert timed <= {name for name, _ in operations()}
    assert {"paged_attention", "varlen_attention", "skinny_linear", "argmax"} <= timed


def test_the_table_shows_torch_and_the_roofline() -> None:
    rows = [
        KernelTime("argmax", "1 x 50", 10.0, 0.0, 25.0, 5.0, {}),
        KernelTime("paged_attention", "fp8", 10.0, 0.0, None, 9.0, {}),
    ]
    first, second = kernel_table(rows).splitlines()[1:]
    assert first.split()[-6:] == ["10.0", "25.0", "2.50", "5.0", "50", "%"]
    assert second.split()[-4:] == ["10.0", "9.0", "90", "%"]
