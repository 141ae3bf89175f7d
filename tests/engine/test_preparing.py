"""Preparing that never ends, and adding that fails as nobody expects: nobody else is held up or hurt."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from engine.bad_batch import PARAMS, SMALL, check_clean, noise, picture_prompt

from mmcore import LLM, SamplingParams
from mmcore.engine import FIRST_STEP_PARTS
from mmcore.errors import EngineError, RequestError


class Panic(BaseException):
    """What a tokenizer's native code raises where it fails."""


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    opened = threading.Event()
    yield opened
    opened.set()


def hang(llm: LLM, gate: threading.Event) -> threading.Event:
    """Prompts are not prepared before ``gate`` opens; set once the first one is being prepared."""
    prepare, inside = llm._pipeline.prepare, threading.Event()

    def hanging(*args: Any, **more: Any) -> Any:
        inside.set()
        gate.wait(60)
        return prepare(*args, **more)

    llm._pipeline.prepare = hanging  # type: ignore[method-assign]
    return inside


def test_a_prompt_that_is_never_prepared_does_not_hold_shutdown(
    picture_family: Any,
    gate: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("mmcore.inputs.threads.CLOSE_SECONDS", 0.2)
    llm = LLM(picture_family.folder, kv_cache_config=SMALL, device="cpu")
    inside = hang(llm, gate)
    handles = [llm.generate_async("Hello", PARAMS) for _ in range(20)]
    assert inside.wait(10)
    started = time.monotonic()
    with caplog.at_level(logging.WARNING):
        llm.shutdown()
    assert time.monotonic() - started < 5
    for handle in handles:
        with pytest.raises(EngineError, match="shut down"):
            handle.result(10)
    assert "prepare" in caplog.text
    assert "left behind" in caplog.text


def fails_in_the_tokenizer(llm: LLM) -> None:
    encode = llm._pipeline.tokenizer.encode

    def failing(text: str, *options: Any, **more: Any) -> Any:
        if "victim" in text:
            raise Panic("0xdeadbeef")
        return encode(text, *options, **more)

    llm._pipeline.tokenizer.encode = failing  # type: ignore[method-assign]


def fails_in_the_feeder(llm: LLM) -> None:
    """When the scheduler has it already."""
    add = llm._engine._feeder.add

    def failing(request: Any, items: Any) -> None:
        if request.sampling.bad:
            raise Panic("0xdeadbeef")
        add(request, items)

    llm._engine._feeder.add = failing  # type: ignore[method-assign]


@pytest.mark.parametrize("break_it", [fails_in_the_tokenizer, fails_in_the_feeder])
def test_a_request_that_cannot_be_added_fails_alone(llm: LLM, break_it: Callable[[LLM], None]) -> None:
    good, victim = picture_prompt(noise(1)), SamplingParams(max_tokens=6, bad=["victim"])
    alone = llm.generate(good, PARAMS).token_ids
    break_it(llm)
    for _ in range(2):
        prompts = [{**good, "cache_salt": "other"}, picture_prompt(noise(2)), good]
        first, failed, last = llm.generate(prompts, [PARAMS, victim, PARAMS])
        assert (first.token_ids, last.token_ids) == (alone, alone)
        assert type(failed.error) is RequestError
        assert str(failed.error) == "adding the request failed (Panic)"
        check_clean(llm)


def test_a_first_step_waits_for_prompts_until_it_is_full(
    picture_family: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is being prepared comes into it, but nobody waits for more than fills it."""
    monkeypatch.setattr("mmcore.async_engine.GATHER_SECONDS", 60.0)
    with LLM(picture_family.folder, kv_cache_config=SMALL, device="cpu", max_num_tokens=96) as llm:
        prepared = [llm.preprocess(f"prompt {n}: {'word ' * 4}") for n in range(4)]
        enough = 96 // FIRST_STEP_PARTS
        assert prepared[0].num_tokens < enough <= sum(one.num_tokens for one in prepared)
        with llm._engine.pipeline.turn.taken():  # as if another prompt were being prepared
            first = llm.generate_async(prepared[0], PARAMS)
            time.sleep(0.3)
            assert llm._engine.stats.scheduler.steps == 0
            handles = [first, *(llm.generate_async(one, PARAMS) for one in prepared[1:])]
            outputs = [handle.result(30) for handle in handles]
    assert all(output.error is None for output in outputs)
