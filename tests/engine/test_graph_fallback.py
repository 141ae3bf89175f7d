"""Where a decode step cannot be captured it runs eagerly: the same tokens, and the reason is kept."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Any

import pytest

from mmcore import LLM, SamplingParams
from mmcore.errors import EngineError, KernelError

READER = str(files("mmcore_qwen2vl") / "reader")
PARAMS = SamplingParams(max_tokens=6, ignore_eos=True)
PROMPTS = ["Read this", "and this", "and the third"]


class Recorder:
    """Captures as often as it is told, then fails; a replay runs the work as it stands."""

    def __init__(self, captures: int, error: Exception) -> None:
        self._left = captures
        self._error = error

    def record(self, work: Callable[[], Any]) -> Callable[[], Any]:
        if self._left == 0:
            raise self._error
        self._left -= 1
        return work


@pytest.fixture
def llm() -> Iterator[Any]:
    with LLM(READER, device="cpu") as made:
        yield made


def answers(llm: Any, prompts: list[str]) -> list[tuple[int, ...]]:
    return [output.token_ids for output in llm.generate(prompts, PARAMS, use_tqdm=False)]


@pytest.mark.parametrize("captures", [0, 1])
def test_eager_steps_give_the_same(llm: Any, captures: int, caplog: pytest.LogCaptureFixture) -> None:
    """After one size was captured and the next was not, too."""
    expected = answers(llm, PROMPTS)
    runner = llm._engine._runner
    runner.graphs = runner.make_graphs()
    runner.graphs._recorder = Recorder(captures, RuntimeError("no capture today"))
    with caplog.at_level(logging.WARNING, "mmcore.runner.cuda_graph"):
        first = answers(llm, PROMPTS[:1])
        assert answers(llm, PROMPTS) == expected
    assert first == expected[:1]
    assert runner.graphs.failure == "RuntimeError: no capture today"
    (told,) = [record.getMessage() for record in caplog.records]
    assert "without CUDA graphs" in told
    assert "no capture today" in told


def test_a_kernel_that_does_not_compile_is_no_reason_to_go_on(llm: Any) -> None:
    """An eager step would need the same kernel: who asks is told which, and how to do without."""
    runner = llm._engine._runner
    runner.graphs = runner.make_graphs()
    runner.graphs._recorder = Recorder(0, KernelError("kernel 'attend' does not run on this device"))
    with pytest.raises(EngineError, match="kernel 'attend' does not run on this device"):
        llm.generate(PROMPTS[0], PARAMS, use_tqdm=False)
