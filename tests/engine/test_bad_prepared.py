"""Prepared requests that contradict themselves, as another process might send them, fail alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from engine.bad_batch import Bench, noise, picture_prompt

from mmcore.errors import InputError
from mmcore.request import PreparedRequest, TokenPositions


def _range(request: PreparedRequest, **changes: int) -> PreparedRequest:
    return replace(request, ranges=(replace(request.ranges[0], **changes),))


def _short_positions(request: PreparedRequest) -> PreparedRequest:
    assert request.positions is not None
    return replace(request, positions=TokenPositions(request.positions.values[:2], 0))


CASES: dict[str, tuple[Callable[[PreparedRequest], PreparedRequest], str]] = {
    "rows that the item has not": (lambda r: _range(r, row=3), "row=3.*does not fit"),
    "an item that is not there": (lambda r: _range(r, item=4), "item=4.*does not fit"),
    "past the end": (lambda r: _range(r, offset=r.num_tokens - 2), "does not fit"),
    "some rows": (lambda r: _range(r, length=2), r"place \[2\] rows"),
    "an axis too few": (_short_positions, r"positions are \(2, \d+\), not \(3, "),
    "no positions": (lambda r: replace(r, positions=None), r"positions are None, not \(3, "),
}


@pytest.mark.parametrize("case", CASES)
def test_a_prepared_request_that_contradicts_itself(pictures_bench: Bench, case: str) -> None:
    spoil, message = CASES[case]
    request = pictures_bench.llm.preprocess(picture_prompt(noise(9)))
    pictures_bench.expect(spoil(request), InputError, message)
