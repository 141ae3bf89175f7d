"""Thousands of requests through the real scheduler, in simulated time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from time import process_time

import pytest
from core.sample_requests import Picture, make_cross_request, make_request
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcore.core.admission import SchedulerLimits
from mmcore.core.block_pool import BlockPool
from mmcore.core.encoder_planner import EncoderPlanner
from mmcore.core.kv_cache_manager import KVCacheManager
from mmcore.core.sequence import Sequence
from mmcore.core.simulator import Simulator, SimulatorOptions
from mmcore.core.simulator_cost import CostModel, Machine, StepWork
from mmcore.core.simulator_device import SimulatedRequest
from mmcore.core.simulator_report import Percentiles, SimulationReport
from mmcore.core.simulator_workload import Workload
from mmcore.inputs.hashing import block_key

LIMITS = SchedulerLimits(
    max_num_tokens=8192, max_batch_size=256, encoder_work=20 * 10**12, max_chunk_tokens=2048
)
TIGHT = Machine(limits=LIMITS, num_blocks=6000, encoder_bytes=32 << 20)
TOY = Machine(limits=replace(LIMITS, max_batch_size=4, max_num_tokens=64), num_blocks=64, block_size=4)
COST = CostModel()
CHECKED = SimulatorOptions(check_every=1)
CHEAP = Workload(
    requests=0,
    opening_tokens=(16, 32),
    prompt_tokens=(8, 32),
    answer_tokens=(1, 8),
    picture_rows=(16, 64),
    picture_share=0.3,
)


def simulate(
    requests: list[SimulatedRequest] | Workload,
    machine: Machine = TOY,
    cost: CostModel = COST,
    options: SimulatorOptions = CHECKED,
) -> SimulationReport:
    return Simulator(machine, cost, block_key, options).run(requests)


def ask(name: str, *pieces: int | Picture, at: float = 0.0, answer: int = 3, n: int = 1) -> SimulatedRequest:
    return SimulatedRequest(
        prepared=make_request(name, list(pieces), n=n), arrival=at, answer_tokens=answer, max_tokens=20
    )


def check_mixed(report: SimulationReport, requests: int) -> None:
    """Everybody had an answer of the foreseen kind, and each kind of trouble came up."""
    assert report.requests == requests
    assert report.finished > 0.9 * requests
    assert report.aborted > 0.01 * requests
    assert set(report.failed) == {"media_format", "request_timeout", "request_failed"}
    assert set(report.refused) == {"request_too_large"}
    assert report.preemptions > requests / 100
    assert 0.2 < report.prefix_hit_rate < 1.0
    assert 0.0 < report.encoder_hit_rate < 0.5, "the encoder cache is too small for the popular pictures"
    assert report.most_queued > LIMITS.max_batch_size


@pytest.mark.parametrize("overlap", [True, False])
def test_a_busy_day(overlap: bool) -> None:
    options = SimulatorOptions(overlap=overlap, check_every=50)
    check_mixed(simulate(Workload(requests=2500, seed=3), TIGHT, options=options), 2500)


@pytest.mark.slow
def test_a_hundred_thousand_requests() -> None:
    began = process_time()
    report = simulate(Workload(requests=100_000), TIGHT, options=SimulatorOptions(check_every=500))
    check_mixed(report, 100_000)
    assert process_time() - began <= 120.0


@pytest.mark.timing
def test_a_long_queue_costs_a_request_nothing() -> None:
    seconds = []
    for queued in (100, 10_000):
        options = SimulatorOptions(keep_live=queued + LIMITS.max_batch_size, check_every=10**9)
        began = process_time()
        report = simulate(replace(CHEAP, requests=11_000), TIGHT, options=options)
        seconds.append(process_time() - began)
        assert report.most_queued == queued + LIMITS.max_batch_size
    assert seconds[1] <= 1.5 * seconds[0], f"CPU seconds: {seconds}"


@settings(max_examples=15)
@given(
    seed=st.integers(0, 1000),
    blocks=st.sampled_from((40, 80, 300)),
    encoder_rows=st.sampled_from((16, 64, 200)),
    slots=st.sampled_from((1, 3, 16)),
    tokens=st.sampled_from((24, 100)),
    overlap=st.booleans(),
)
def test_any_machine_serves_or_refuses_everybody(
    seed: int, blocks: int, encoder_rows: int, slots: int, tokens: int, overlap: bool
) -> None:
    load = replace(CHEAP, requests=60, seed=seed, several_share=0.3, broken_share=0.05, fault_share=0.05)
    limits = replace(
        LIMITS, max_batch_size=slots, max_num_tokens=tokens, max_chunk_tokens=None, encoder_work=10**11
    )
    machine = Machine(limits=limits, num_blocks=blocks, encoder_bytes=encoder_rows * load.bytes_per_row)
    report = simulate(load, machine, options=SimulatorOptions(overlap=overlap, check_every=1))
    assert report.requests == 60


# ------------------------------------------------------------------ time


def test_time_is_what_the_cost_model_says() -> None:
    """Two requests of 4 tokens, together: a step with both prompts, then two of one token each."""
    cost = CostModel(step=1.0, token=0.1, row=0.01, kv_position=0.001)
    report = simulate(
        [ask("a", 1, 2, 3, 4), ask("b", 5, 6, 7, 8)], cost=cost, options=SimulatorOptions(overlap=False)
    )
    steps = [1.0 + 0.1 * 8 + 0.02 + 0.008, 1.0 + 0.1 * 2 + 0.02 + 0.010, 1.0 + 0.1 * 2 + 0.02 + 0.012]
    assert report.seconds == pytest.approx(sum(steps))
    assert report.time_to_first_token.max == pytest.approx(steps[0])
    assert report.latency.p50 == pytest.approx(sum(steps))
    assert report.device_busy == pytest.approx(1.0)
    assert (report.generated_tokens, report.prompt_tokens) == (6, 8)


def test_a_picture_waits_for_a_worker_and_is_encoded() -> None:
    cost = CostModel(
        step=1.0,
        token=0.0,
        row=0.0,
        kv_position=0.0,
        encoder_flop=0.5,
        preprocess_workers=1,
        preprocess_item=2.0,
        preprocess_row=0.0,
    )
    requests = [ask("a", Picture(1, 4), 1, answer=1), ask("b", Picture(2, 4), 1, answer=1)]
    report = simulate(requests, cost=cost, options=SimulatorOptions(overlap=False))
    first = report.time_to_first_token
    assert (first.p50, first.max) == pytest.approx((2.0 + 3.0, 5.0 + 3.0))  # ready at 2 and 4, free at 5
    assert report.workers_busy == pytest.approx(0.5)


def test_work_of_a_step_reads_what_its_rows_attend_to() -> None:
    cost = CostModel(step=0.0, token=0.0, row=0.0, kv_position=1.0)
    assert cost.step_seconds(StepWork(tokens=2, rows=1, kv_read=7)) == 7.0
    assert CostModel().step_seconds(StepWork()) == 0.0, "a step without work takes no time"


def test_a_step_that_overlaps_costs_no_time_of_its_own() -> None:
    cost = CostModel(step=1.0, token=0.0, row=0.0, kv_position=0.0)
    report = simulate([ask("a", 1, 2, answer=5)], cost=cost)
    assert report.latency.max == pytest.approx(5.0)


# ------------------------------------------------------------------ ends


def test_each_request_is_counted_by_how_it_ended() -> None:
    cat = Picture(1, 4)
    trouble = replace(ask("broken", cat, 1), broken_items=frozenset({0}))
    late = replace(ask("late", Picture(2, 4), 1), late_items={0: 100.0})
    fault = replace(ask("fault", 1, 2, 3), fails_at=2)
    aborted = replace(ask("aborted", 1, 2, answer=15), abort_after=0.012)
    report = simulate(
        [ask("fine", 1, 2), trouble, late, fault, aborted, ask("long", *[1] * 400), ask("n", 4, 5, n=3)]
    )
    assert report.failed == {"media_format": 1, "request_timeout": 1, "request_failed": 1}
    assert report.refused == {"request_too_large": 1}
    assert (report.finished, report.aborted) == (2, 1)


def test_cross_attention_requests_and_their_shared_states() -> None:
    requests = [
        SimulatedRequest(
            prepared=make_cross_request(f"r{number}", [1, 2], [Picture(number % 3, 6)], n=1 + number % 2),
            arrival=number * 0.001,
            answer_tokens=4,
            max_tokens=3,
        )
        for number in range(20)
    ]
    assert simulate(requests).finished == 20


def test_the_report_is_frozen_and_a_seed_is_a_workload() -> None:
    load = replace(CHEAP, requests=100)
    report = simulate(load)
    assert report == simulate(load)
    assert report != simulate(replace(load, seed=1))
    with pytest.raises(FrozenInstanceError):
        report.finished = 3  # type: ignore[misc]


def test_percentiles() -> None:
    assert Percentiles.of([float(n) for n in range(100, 0, -1)]) == Percentiles(50.0, 90.0, 99.0, 100.0)
    assert Percentiles.of([]) == Percentiles()


# ------------------------------------------------------------------ the simulator can fail


def _leak(sequence: Sequence, release: Callable[[list[int]], None]) -> None:
    release(sequence.blocks[1:])


def test_a_leak_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KVCacheManager, "release", lambda kv, s: _leak(s, kv.pool.release))
    monkeypatch.setattr(BlockPool, "check_integrity", lambda pool, references: None)
    with pytest.raises(AssertionError, match="held and nobody is left"):
        simulate([ask("a", 1, 2, 3, 4, 5)])


def test_a_stall_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EncoderPlanner, "hold", lambda planner, sequence, group: False)
    with pytest.raises(AssertionError, match="schedules nothing"):
        simulate([ask("a", Picture(1, 4), 2)])


def test_an_answer_of_another_length_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedRequest, "expected_tokens", 2)
    with pytest.raises(AssertionError, match="after 3 tokens"):
        simulate([ask("a", 1, 2)])
