"""The bench's parts on a tiny checkpoint: it asks for what it says, and its figures are the answers'."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mmcore_qwen2vl.testing
import pytest

from mmcore import LLM
from mmcore.bench.host_time import host_time
from mmcore.bench.measure import Run, measure, run_once, summarise
from mmcore.bench.percentiles import RequestTimes
from mmcore.bench.workload import Workload

PICTURES = Workload(name="p", requests=3, picture=(112, 56), prompt_tokens=150, new_tokens=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mmcore_qwen2vl.testing.write_tiny_checkpoint(tmp_path_factory.mktemp("bench"))


@pytest.fixture(scope="module")
def llm(folder: Path) -> Any:
    with LLM(folder, device="cpu", load_format="dummy") as made:
        yield made


def test_prompts_have_the_length_that_was_asked_for(llm: Any) -> None:
    prompts = PICTURES.prompts(llm, seed=4, media_seed=4)
    lengths = [len(llm.preprocess(prompt).token_ids) for prompt in prompts]
    assert lengths == [150] * 3


def test_runs_bring_new_media_and_shared_ones_are_shared(llm: Any) -> None:
    def keys(workload: Workload, seed: int) -> list[bytes]:
        return [llm.preprocess(p).items[0].encoder_key for p in workload.prompts(llm, seed, seed)]

    assert len({*keys(PICTURES, 1), *keys(PICTURES, 2)}) == 6
    assert len(set(keys(PICTURES.scaled(distinct=2), 1))) == 2


def test_a_warm_run_finds_its_pictures(llm: Any) -> None:
    cold = measure(llm, PICTURES, repeats=1, seed=30)
    warm = measure(llm, PICTURES, repeats=1, seed=60, warm=True)
    assert warm.cached_tokens > cold.cached_tokens
    assert (warm.requests, warm.prompt_tokens) == (3, 150)


def a_run(total: float, first: Sequence[float], between: float) -> Run:
    times = tuple(RequestTimes(f, between, total, 10) for f in first)
    return Run(total=total, times=times, prompt_tokens=5, all_prompt_tokens=15, cached_tokens=0)


def test_figures_are_medians_over_runs_of_the_median_request() -> None:
    runs = [
        a_run(2.0, (0.1, 0.2, 0.9), 0.01),
        a_run(1.0, (0.3, 0.4, 0.5), 0.02),
        a_run(4.0, (0.3, 0.3, 0.3), 0.04),
    ]
    figures = summarise("x", 3, runs)
    assert (figures.total_ms.median, figures.total_ms.low, figures.total_ms.high) == (2000, 1000, 4000)
    assert figures.first_ms.median == pytest.approx(300)
    assert figures.token_ms.median == pytest.approx(20)
    assert figures.tokens_per_second.median == pytest.approx(15)
    assert figures.requests_per_second.median == pytest.approx(1.5)
    assert figures.total_tokens_per_second.median == pytest.approx(22.5)


def test_every_answer_has_all_its_tokens(llm: Any) -> None:
    run = run_once(llm, PICTURES.prompts(llm, 80, 80), [4, 2, 4])
    assert [times.tokens for times in run.times] == [4, 2, 4]
    assert run.tokens == 10
    assert all(times.first <= times.whole <= run.total for times in run.times)


def test_the_parts_of_a_step_add_up_and_the_engine_is_left_as_it_was(llm: Any) -> None:
    before = set(vars(llm._engine))
    with host_time(llm._engine) as watch:
        run_once(llm, PICTURES.prompts(llm, 90, 90), [4] * 3)
    assert watch.calls["step"] == watch.calls["submit"] == watch.calls["schedule"] > 4
    parts = sum(seconds for part, seconds in watch.seconds.items() if part != "step")
    assert parts <= watch.seconds["step"]
    assert set(vars(llm._engine)) == before
