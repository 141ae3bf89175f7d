"""Shutdown, collection of a forgotten `LLM`, two side by side, a soak: nothing hangs, nothing stays."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from typing import Any

import pytest
from engine.bad_batch import PARAMS, SMALL, check_clean, noise, picture_prompt

from mmcore import LLM, SamplingParams
from mmcore.async_engine import THREAD_PREFIX
from mmcore.errors import EngineError

LONG = SamplingParams(max_tokens=900, ignore_eos=True)
PROMPTS = [picture_prompt(noise(1)), {"prompt": "Hello"}, picture_prompt(noise(2)), {"prompt": "Who?"}]


def own_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(THREAD_PREFIX)]


def wait_until(true: Any, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.002)


def test_shutdown_while_running(picture_family: Any) -> None:
    llm = LLM(picture_family.folder, kv_cache_config=SMALL, device="cpu")
    handles = [llm.generate_async(prompt, LONG, streaming=True) for prompt in PROMPTS]
    next(iter(handles[1]))
    llm.shutdown()
    llm.shutdown()
    for handle in (handles[0], *handles[2:]):
        with pytest.raises(EngineError, match="shut down"):
            handle.result(10)
    for ask in (llm.generate, llm.generate_async):
        with pytest.raises(EngineError, match="is shut down; make a new LLM"):
            ask("a")
    with pytest.raises(EngineError, match="is shut down"):
        llm.chat([{"role": "user", "content": "a"}])


def test_submitting_while_it_shuts_down(picture_family: Any) -> None:
    """Either an answer or an `EngineError`, never a handle that nobody ends."""
    llm = LLM(picture_family.folder, kv_cache_config=SMALL, device="cpu")
    ends: list[str] = []

    def ask() -> None:
        while True:
            try:
                llm.generate_async("a", SamplingParams(max_tokens=1)).result(10)
            except EngineError:
                return ends.append("refused")

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    llm.shutdown()
    for thread in threads:
        thread.join(10)
    assert ends == ["refused"] * 4


def test_two_side_by_side(picture_family: Any) -> None:
    def start() -> LLM:
        return LLM(picture_family.folder, kv_cache_config=SMALL, device="cpu")

    with start() as one, start() as two:
        handles = [llm.generate_async(p, PARAMS) for p in PROMPTS for llm in (one, two)]
        answers = [handle.result(60).token_ids for handle in handles]
        assert answers[::2] == answers[1::2]
        one.shutdown()
        assert two.generate(PROMPTS[0], PARAMS).token_ids == answers[0]


def test_a_forgotten_llm_ends_its_threads(picture_family: Any) -> None:
    before = set(own_threads())
    llm = LLM(picture_family.folder, kv_cache_config=SMALL, device="cpu")
    llm.generate(PROMPTS, PARAMS)
    handle = llm.generate_async("a", LONG)
    gone = weakref.ref(llm)
    del llm
    gc.collect()
    assert gone() is None
    with pytest.raises(EngineError, match="shut down"):
        handle.result(10)
    wait_until(lambda: set(own_threads()) <= before)


def test_an_llm_that_is_collected_on_its_own_thread(picture_family: Any) -> None:
    """It must not wait for itself."""
    before = set(own_threads())
    llm = LLM(picture_family.folder, kv_cache_config=SMALL, device="cpu")
    front = llm._front
    llm._finalizer.detach()
    llm._front._post(front.shutdown)
    wait_until(lambda: set(own_threads()) <= before)
    with pytest.raises(EngineError):
        llm.generate("a")


def test_a_soak_leaves_nothing(llm: LLM) -> None:
    """Good, bad and aborted requests, 200 in all: no references, no growth."""
    import tracemalloc

    alive: list[weakref.ref[Any]] = []

    def round_of(count: int) -> None:
        for n in range(count // 4):
            bad = {"prompt": "a", "multi_modal_data": {"image": b"text"}}
            asked = [picture_prompt(noise(n)), {"prompt": f"Hello {n}"}, bad]
            handles = [llm.generate_async(p, SamplingParams(max_tokens=2)) for p in asked]
            handles.append(llm.generate_async("b", LONG))
            handles[3].abort()
            for handle in handles:
                handle.wait(60)
            alive.extend(weakref.ref(handle) for handle in handles)

    round_of(200)
    check_clean(llm)
    gc.collect()
    assert sum(ref() is not None for ref in alive) == 0
    tracemalloc.start()
    round_of(40)
    check_clean(llm)
    gc.collect()
    first = tracemalloc.get_traced_memory()[0]
    round_of(80)
    check_clean(llm)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - first
    tracemalloc.stop()
    assert grown < 4_000 * 80, grown
