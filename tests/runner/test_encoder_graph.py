"""Which encoder runs are captured, and what happens where a capture fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mmcore.runner.encoder_graph import MOST_BYTES, MOST_GRAPHS, EncoderGraphs


class Double(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


class Recorder:
    """Counts captures; a replay runs the work as it stands."""

    def __init__(self, fails: bool = False) -> None:
        self.count = 0
        self.fails = fails

    def record(self, work: Callable[[], Any]) -> Callable[[], Any]:
        if self.fails:
            raise RuntimeError("no capture today")
        self.count += 1
        return work


@pytest.fixture
def graphs() -> EncoderGraphs:
    return EncoderGraphs(Double(), torch.device("cpu"))


def watched(graphs: EncoderGraphs, *, fails: bool = False) -> Recorder:
    recorder = Recorder(fails)
    graphs._recorder = recorder  # type: ignore[assignment]
    return recorder


def run(graphs: EncoderGraphs, count: int) -> None:
    x = torch.randn(count)
    assert torch.equal(graphs.run({"x": x}), 2 * x)


def test_a_shape_is_captured_when_it_comes_again(graphs: EncoderGraphs) -> None:
    recorder = watched(graphs)
    captured = []
    for count in (3, 4, 3, 3, 4, 4):
        run(graphs, count)
        captured.append(recorder.count)
    assert captured == [0, 0, 1, 1, 2, 2]


def test_few_graphs_are_kept(graphs: EncoderGraphs) -> None:
    recorder = watched(graphs)
    for count in (*range(1, MOST_GRAPHS + 2), 1, 1):  # the first one was forgotten meanwhile
        run(graphs, count)
    assert recorder.count == 1
    assert len(graphs._graphs) == MOST_GRAPHS


def test_large_inputs_are_not_captured(graphs: EncoderGraphs) -> None:
    recorder = watched(graphs)
    for _ in range(3):
        run(graphs, MOST_BYTES // 4 + 1)
    assert recorder.count == 0


def test_a_failed_capture_is_told_and_runs_eagerly(
    graphs: EncoderGraphs, caplog: pytest.LogCaptureFixture
) -> None:
    watched(graphs, fails=True)
    for _ in range(3):
        run(graphs, 5)
    assert graphs.failure == "RuntimeError: no capture today"
    assert len(caplog.records) == 1
