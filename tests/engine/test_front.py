"""The front of the engine: one prompt or many, handles, streams, aborts, shutdown, the user's own loops."""

from __future__ import annotations

import asyncio
import gc
import io
import signal
import sys
import threading
import time
import weakref
from typing import Any

import pytest
from engine.bad_batch import PARAMS, check_clean, noise, picture_prompt

from mmcore import LLM, SamplingParams
from mmcore.async_engine import THREAD_PREFIX
from mmcore.errors import EngineError, RequestAbortedError

LONG = SamplingParams(max_tokens=900, ignore_eos=True)
PROMPTS = [picture_prompt(noise(1)), {"prompt": "Hello"}, picture_prompt(noise(2)), {"prompt": "Who?"}]


def own_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(THREAD_PREFIX)]


def wait_until(true: Any, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.002)


# ------------------------------------------------------------------ generate


def test_one_many_and_none(llm: LLM) -> None:
    one = [llm.generate(prompt, PARAMS) for prompt in PROMPTS]
    many = llm.generate(PROMPTS, PARAMS)
    assert [o.token_ids for o in many] == [o.token_ids for o in one], "outputs keep the prompts' order"
    assert llm.generate([], PARAMS) == []
    assert [o.token_ids for o in llm.generate([PROMPTS[0]], PARAMS)] == [one[0].token_ids]
    assert len({o.request_id for o in (*one, *many)}) == 8


def test_more_prompts_than_a_batch_holds(picture_family: Any) -> None:
    with LLM(picture_family.folder, device="cpu", max_batch_size=2) as llm:
        lengths = [SamplingParams(max_tokens=1 + n % 5, ignore_eos=True) for n in range(9)]
        outputs = llm.generate(["Hello"] * 9, lengths)
        assert [len(o.token_ids) for o in outputs] == [1 + n % 5 for n in range(9)]
        check_clean(llm)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("terminal", "use_tqdm", "shown"), [(1, 1, 1), (1, 0, 0), (0, 1, 0)])
def test_the_progress_bar_is_for_terminals(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, terminal: int, use_tqdm: int, shown: int
) -> None:
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    llm.generate(["a", "b"], PARAMS, use_tqdm=bool(use_tqdm))
    assert ("2/2" in stream.getvalue()) == bool(shown)
    assert bool(stream.getvalue()) == bool(shown)


# ------------------------------------------------------------------ handles


def test_every_way_to_wait_gives_the_same(llm: LLM) -> None:
    expected = llm.generate(PROMPTS[0], PARAMS).token_ids

    async def ways() -> list[tuple[int, ...]]:
        handle = llm.generate_async(PROMPTS[0], PARAMS)
        awaited = await handle
        again = await handle
        streamed = [o async for o in llm.generate_async(PROMPTS[0], PARAMS, streaming=True)]
        whole = [o async for o in llm.generate_async(PROMPTS[0], PARAMS)]
        assert len(whole) == 1
        return [awaited.token_ids, again.token_ids, streamed[-1].token_ids, whole[0].token_ids]

    looped = list(llm.generate_async(PROMPTS[0], PARAMS))
    assert asyncio.run(ways()) == [expected] * 4
    assert [o.token_ids for o in looped] == [expected]
    assert llm.generate_async(PROMPTS[0], PARAMS).result(60).token_ids == expected


@pytest.mark.parametrize("n", [1, 3])
def test_a_stream_only_grows_into_the_answer(llm: LLM, n: int) -> None:
    params = SamplingParams(max_tokens=40, ignore_eos=True, temperature=1.0, seed=3, n=n)
    expected = llm.generate(PROMPTS[0], params)
    seen = list(llm.generate_async(PROMPTS[0], params, streaming=True))
    assert [o.finished for o in seen] == [False] * (len(seen) - 1) + [True]
    for index in range(n):
        shown = ""
        for output in seen:
            text = output.outputs[index].text
            assert text.startswith(shown), "what was shown once stays"
            shown = text
        assert shown == expected.outputs[index].text
        assert seen[-1].outputs[index].token_ids == expected.outputs[index].token_ids


def test_a_failed_request_raises_from_every_way(llm: LLM) -> None:
    bad = {"prompt": ""}
    expected = type(llm.generate_async(bad).wait(60).error)  # type: ignore[union-attr]
    for ask in (lambda h: h.result(60), list, lambda h: asyncio.run(awaited(h))):
        with pytest.raises(expected):
            ask(llm.generate_async(bad))


async def awaited(handle: Any) -> Any:
    return await handle


def test_a_result_that_takes_too_long(llm: LLM) -> None:
    handle = llm.generate_async("a", LONG)
    with pytest.raises(TimeoutError, match="is not finished after 0 s"):
        handle.result(0)
    handle.abort()


# ------------------------------------------------------------------ aborts


@pytest.mark.parametrize("n", [1, 3])
def test_an_abort_midway_harms_nobody(llm: LLM, n: int) -> None:
    alone = llm.generate(PROMPTS[0], PARAMS).token_ids
    params = LONG.model_copy(update={"n": n})
    handle = llm.generate_async(PROMPTS[2], params, streaming=True)
    stream = iter(handle)
    partial = next(stream)
    others = [llm.generate_async(PROMPTS[0], PARAMS) for _ in range(3)]
    handle.abort()
    handle.abort()
    output = handle.result(60)
    assert [s.finish_reason for s in output.outputs] == ["abort"] * n
    assert output.error is None
    assert output.text.startswith(partial.text)
    assert [other.result(60).token_ids for other in others] == [alone] * 3
    handle.abort()
    check_clean(llm)


def test_an_abort_before_the_start(llm: LLM) -> None:
    prepare, gate = llm._pipeline.prepare, threading.Event()

    def slow(*args: Any, **more: Any) -> Any:
        gate.wait(10)
        return prepare(*args, **more)

    llm._pipeline.prepare = slow  # type: ignore[method-assign]
    handle = llm.generate_async("a", PARAMS)
    handle.abort()
    with pytest.raises(RequestAbortedError, match="before it started"):
        handle.result(10)
    gate.set()
    check_clean(llm)


def test_leaving_a_loop_aborts(llm: LLM) -> None:
    handle = llm.generate_async("a", LONG, streaming=True)
    for _ in handle:
        break
    assert handle.result(10).outputs[0].finish_reason == "abort"

    async def leave() -> Any:
        handle = llm.generate_async("a", LONG, streaming=True)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(awaited(handle), 0.02)
        return handle

    assert asyncio.run(leave()).result(10).outputs[0].finish_reason == "abort"
    check_clean(llm)


def test_a_loop_that_is_closed_too_early_harms_nobody(llm: LLM) -> None:
    """The watcher of a request outlives its event loop."""
    loop = asyncio.new_event_loop()
    stream = llm.generate_async("a", LONG, streaming=True).__aiter__()
    loop.run_until_complete(stream.__anext__())
    loop.close()
    assert len(llm.generate("b", PARAMS).token_ids) == 6
    asyncio.run(stream.aclose())  # type: ignore[attr-defined]
    check_clean(llm)


def test_ctrl_c_aborts_everything(llm: LLM) -> None:
    me = threading.main_thread().ident
    assert me is not None
    for prompts in ("a", ["a", "b", "c"]):

        def press() -> None:
            wait_until(lambda: llm._engine._scheduler.stats().running > 0)
            signal.pthread_kill(me, signal.SIGINT)

        presser = threading.Thread(target=press)
        presser.start()
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            llm.generate(prompts, LONG)
        presser.join()
        check_clean(llm, seconds=2.0)
        assert time.monotonic() - started < 10
    assert len(llm.generate("a", PARAMS).token_ids) == 6


# ------------------------------------------------------------------ ends


def test_shutdown_while_running(picture_family: Any) -> None:
    llm = LLM(picture_family.folder, device="cpu")
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
    llm = LLM(picture_family.folder, device="cpu")
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


def test_two_side_by_side(picture_family: Any, sound_family: Any) -> None:
    with LLM(picture_family.folder, device="cpu") as one, LLM(picture_family.folder, device="cpu") as two:
        handles = [llm.generate_async(p, PARAMS) for p in PROMPTS for llm in (one, two)]
        answers = [handle.result(60).token_ids for handle in handles]
        assert answers[::2] == answers[1::2]
        one.shutdown()
        assert two.generate(PROMPTS[0], PARAMS).token_ids == answers[0]


def test_a_forgotten_llm_ends_its_threads(picture_family: Any) -> None:
    before = set(own_threads())
    llm = LLM(picture_family.folder, device="cpu")
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
    llm = LLM(picture_family.folder, device="cpu")
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
