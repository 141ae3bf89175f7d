"""The preprocessing pool: bounded, polled, and gone when closed."""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from inputs.media_files import encoded, picture
from inputs.toy_family import ToyInputs, toy_pipeline

from mmcore.errors import MediaFormatError, RequestAbortedError, RequestError
from mmcore.inputs.pool import PreprocessPool
from mmcore.request import EncodeCost, EncodedSource, EncoderInput, ItemPlan, PreparedItem, Rows

PLAN = ItemPlan((Rows(1),), 1, 8)


def item(data: bytes = b"") -> PreparedItem:
    return PreparedItem("image", EncodedSource(data), b"", PLAN, EncodeCost(1), b"", b"")


class Gate:
    """Preprocessing that waits to be let through, and counts who is inside."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.inside = 0
        self.most = 0
        self.started = 0
        self._lock = threading.Lock()

    def __call__(self, prepared: PreparedItem) -> EncoderInput:
        with self._lock:
            self.started += 1
            self.inside += 1
            self.most = max(self.most, self.inside)
        assert self.open.wait(10)
        with self._lock:
            self.inside -= 1
        return EncoderInput({"x": np.frombuffer(prepared.source.data, np.uint8)})  # type: ignore[union-attr]


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def make_pool() -> Iterator[Callable[..., PreprocessPool]]:
    pools: list[PreprocessPool] = []

    def make(preprocess: Any, workers: int = 2, capacity: int = 8) -> PreprocessPool:
        pools.append(PreprocessPool(preprocess, workers=workers, capacity=capacity))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def collect(pool: PreprocessPool, count: int) -> list[Any]:
    ready: list[Any] = []
    while len(ready) < count:
        assert pool.wait(10)
        ready += pool.poll()
    return ready


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_every_item_comes_out_once(make_pool: Any, gate: Gate) -> None:
    gate.open.set()
    pool = make_pool(gate)
    for number in range(20):
        pool.submit(f"r{number % 3}", number, item(bytes([number])))
    ready = collect(pool, 20)
    assert sorted(index for _, index, _ in ready) == list(range(20))
    assert all(outcome.arrays["x"].tolist() == [index] for _, index, outcome in ready)
    assert pool.poll() == []


def test_no_more_than_the_workers_run_at_once(make_pool: Any, gate: Gate) -> None:
    pool = make_pool(gate, workers=3, capacity=8)
    for number in range(9):
        pool.submit("r", number, item())
    until(lambda: gate.inside == 3)
    time.sleep(0.02)
    gate.open.set()
    collect(pool, 9)
    assert gate.most == 3


def test_results_that_nobody_polls_hold_the_workers_back(make_pool: Any, gate: Gate) -> None:
    gate.open.set()
    pool = make_pool(gate, workers=2, capacity=4)
    for number in range(20):
        pool.submit("r", number, item())
    until(lambda: gate.started == 4)
    time.sleep(0.05)
    assert gate.started == 4
    assert len(collect(pool, 20)) == 20


def test_waiting_ends_in_time(make_pool: Any, gate: Gate) -> None:
    pool = make_pool(gate)
    start = time.monotonic()
    assert not pool.wait(0.05)
    assert 0.04 < time.monotonic() - start < 2
    gate.open.set()
    pool.submit("r", 0, item())
    assert pool.wait(10)
    assert pool.wait(0)


def test_a_result_wakes_whoever_waits_for_other_things_too(gate: Gate) -> None:
    wake = threading.Event()
    pool = PreprocessPool(gate, workers=1, capacity=2, wake=wake)
    pool.submit("r", 0, item())
    assert not wake.wait(0.02)
    gate.open.set()
    assert wake.wait(10)
    assert len(pool.poll()) == 1
    pool.close()


def test_polling_never_waits_for_work(make_pool: Any, gate: Gate) -> None:
    pool = make_pool(gate)
    pool.submit("r", 0, item())
    start = time.monotonic()
    assert pool.poll() == []
    assert time.monotonic() - start < 0.5
    gate.open.set()


def test_a_cancelled_request_is_never_polled(make_pool: Any, gate: Gate) -> None:
    pool = make_pool(gate, workers=1)
    for number, request in enumerate(("gone", "gone", "stays", "gone")):
        pool.submit(request, number, item())
    until(lambda: gate.inside == 1)
    pool.cancel("gone")
    gate.open.set()
    assert [(request, index) for request, index, _ in collect(pool, 1)] == [("stays", 2)]
    assert not pool.wait(0.05)
    assert gate.started == 2


def test_a_request_may_come_again_after_it_was_cancelled(make_pool: Any, gate: Gate) -> None:
    pool = make_pool(gate, workers=1)
    pool.submit("r", 0, item(b"\1"))
    until(lambda: gate.inside == 1)
    pool.cancel("r")
    pool.submit("r", 0, item(b"\2"))
    gate.open.set()
    ((_, _, outcome),) = collect(pool, 1)
    assert outcome.arrays["x"].tolist() == [2]


def test_ready_results_of_a_cancelled_request_are_dropped(make_pool: Any, gate: Gate) -> None:
    gate.open.set()
    pool = make_pool(gate)
    pool.submit("r", 0, item())
    assert pool.wait(10)
    pool.cancel("r")
    assert pool.poll() == []


def test_errors_are_the_items_own(make_pool: Any, caplog: pytest.LogCaptureFixture) -> None:
    def fails(prepared: PreparedItem) -> EncoderInput:
        if prepared.source.data == b"typed":  # type: ignore[union-attr]
            raise MediaFormatError("the PNG cannot be decoded")
        if prepared.source.data == b"plugin":  # type: ignore[union-attr]
            raise ValueError("at 0x7f00deadbeef")
        if prepared.source.data == b"exit":  # type: ignore[union-attr]
            raise SystemExit(3)
        return EncoderInput({})

    pool = make_pool(fails, workers=1)
    for number, data in enumerate((b"typed", b"plugin", b"exit", b"good")):
        pool.submit("r", number, item(data))
    outcomes = [outcome for _, _, outcome in collect(pool, 4)]
    assert [type(o) for o in outcomes] == [MediaFormatError, RequestError, RequestError, EncoderInput]
    assert [str(o) for o in outcomes[:3]] == [
        "item 1 (image): the PNG cannot be decoded",
        "item 2 (image): preprocessing failed (ValueError)",
        "item 3 (image): preprocessing failed (SystemExit)",
    ]
    assert "0x7f00deadbeef" in caplog.text


def test_closing_leaves_no_thread_and_no_waiter() -> None:
    before = threading.active_count()
    pool = PreprocessPool(lambda prepared: EncoderInput({}), workers=4, capacity=4)
    waiter = threading.Thread(target=pool.wait)
    waiter.start()
    pool.close()
    waiter.join(10)
    assert not waiter.is_alive()
    assert threading.active_count() == before
    pool.close()
    with pytest.raises(RequestAbortedError, match="closed"):
        pool.submit("r", 0, item())


def test_closing_does_not_wait_for_what_hangs(
    gate: Gate, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mmcore.inputs.threads.CLOSE_SECONDS", 0.1)
    pool = PreprocessPool(gate, workers=2, capacity=4)
    pool.submit("r", 0, item())
    until(lambda: gate.inside == 1)
    start = time.monotonic()
    pool.close()
    assert time.monotonic() - start < 2
    assert "mmcore-preprocess-0 did not end within 0.1 s" in caplog.text
    gate.open.set()
    until(lambda: gate.inside == 0)
    assert pool.poll() == []


def test_closing_drops_what_has_not_started(gate: Gate) -> None:
    pool = PreprocessPool(gate, workers=1, capacity=4)
    for number in range(5):
        pool.submit("r", number, item())
    until(lambda: gate.inside == 1)
    threading.Timer(0.05, gate.open.set).start()
    pool.close()
    assert gate.started == 1
    assert pool.poll() == []


def test_an_idle_pool_holds_no_pixels(make_pool: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="mmcore.inputs.pool")  # its records would hold the frames
    held: list[weakref.ref[np.ndarray]] = []

    def preprocess(prepared: PreparedItem) -> EncoderInput:
        pixels = np.zeros(1_000)
        held.append(weakref.ref(pixels))
        if prepared.source.data:  # type: ignore[union-attr]
            raise ValueError
        return EncoderInput({"pixels": pixels})

    pool = make_pool(preprocess, workers=1)
    for number, data in enumerate((b"fails", b"")):
        pool.submit("r", number, item(data))
    outcomes = collect(pool, 2)
    errors = [outcome for _, _, outcome in outcomes if isinstance(outcome, Exception)]
    del outcomes
    gc.collect()
    assert len(errors) == 1
    assert [ref() is None for ref in held] == [True, True]


def test_real_pictures_through_the_pool(make_pool: Any) -> None:
    pipeline = toy_pipeline()
    media = [encoded(picture(40, 30, seed)) for seed in range(6)]
    request = pipeline.prepare({"prompt": "x", "multi_modal_data": {"image": media}}, request_id="r")
    pool = make_pool(pipeline.preprocess)
    for index, prepared in enumerate(request.items):
        pool.submit("r", index, prepared)
    for _, index, outcome in collect(pool, 6):
        expected = pipeline.preprocess(request.items[index])
        assert np.array_equal(outcome.arrays["pixels"], expected.arrays["pixels"])


def test_a_plugins_mistake_does_not_leak_into_the_message(make_pool: Any) -> None:
    pipeline = toy_pipeline(adapter={"inputs": ToyInputs(fails="preprocess")})
    request = pipeline.prepare(
        {"prompt": "x", "multi_modal_data": {"image": encoded(picture(28, 28))}}, request_id="r"
    )
    pool = make_pool(pipeline.preprocess)
    pool.submit("r", 0, request.items[0])
    ((_, _, outcome),) = collect(pool, 1)
    assert "deadbeef" not in str(outcome)
