"""The front of the engine: one prompt or many, handles, streams, aborts, shutdown, the user's own loops."""

from __future__ import annotations

import asyncio
import io
import re
import signal
import sys
import threading
import time
from typing import Any

import pytest
from engine.bad_batch import PARAMS, SMALL, check_clean, noise, picture_prompt

from mmcore import LLM, SamplingParams
from mmcore.async_engine import THREAD_PREFIX
from mmcore.errors import RequestAbortedError

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
    nothing: list[str] = []
    assert llm.generate(nothing, PARAMS) == []
    assert [o.token_ids for o in llm.generate([PROMPTS[0]], PARAMS)] == [one[0].token_ids]
    assert len({o.request_id for o in (*one, *many)}) == 8


def test_more_prompts_than_a_batch_holds(picture_family: Any) -> None:
    with LLM(picture_family.folder, kv_cache_config=SMALL, device="cpu", max_batch_size=2) as llm:
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


def test_the_progress_bar_moves_before_a_request_ends(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("mmcore.progress.REFRESH", 0.0)
    llm.generate(["a"], SamplingParams(max_tokens=60, ignore_eos=True))
    shown = re.findall(r"(\d+)%\|.*?\| (?:(\d)/1 requests, (\d+) tokens)?", stream.getvalue())
    running = {int(percent) for percent, ended, _ in shown if ended == "0"}
    assert len(running & set(range(1, 100))) >= 3, "it stands still until the request ends"
    assert [int(percent) for percent, _, _ in shown] == sorted(int(percent) for percent, _, _ in shown)
    assert shown[-1] == ("100", "1", "60")


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
