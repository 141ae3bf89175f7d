"""Percentiles, arrivals, and a trace read back: laws, and cases worked out by hand."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcore.bench.percentiles import Percentiles
from mmcore.bench.profile import profile_table
from mmcore.bench.serve_sim import arrivals
from mmcore.bench.trace import Mechanism, mechanisms


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_percentiles_are_numpys(values: list[float]) -> None:
    import numpy as np

    found = Percentiles.of(values)
    wanted = np.percentile(values, [50, 90, 99])
    assert [found.p50, found.p90, found.p99] == pytest.approx(list(wanted), abs=1e-6)
    assert found.mean == pytest.approx(np.mean(values))


@given(st.integers(0, 2**31), st.floats(0.01, 1e3))
def test_arrivals_are_a_poisson_process(seed: int, rate: float) -> None:
    """Gaps are exponential: their mean and their standard deviation are 1 / rate."""
    moments = arrivals(rate, 2001, seed)
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    assert moments[0] == 0.0
    assert min(gaps) >= 0
    mean = sum(gaps) / len(gaps)
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert mean * rate == pytest.approx(1, abs=0.15)
    assert deviation * rate == pytest.approx(1, abs=0.25)
    assert arrivals(rate, 5, seed) == arrivals(rate, 9, seed)[:5]


def test_an_infinite_rate_is_all_at_once() -> None:
    assert arrivals(math.inf, 3, 1) == [0.0, 0.0, 0.0]


def event(cat: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "args": args}


def test_time_goes_to_the_innermost_mechanism() -> None:
    """A step of 1,000 us: 100 of bookkeeping, then decode for 800 with 300 of sampling within, 100 more."""
    events = [
        event("user_annotation", "mmcore.step", 0, 1000),
        event("user_annotation", "mmcore.decode", 100, 800),
        event("user_annotation", "mmcore.sampling", 200, 300),
        event("user_annotation", "somebody else's", 0, 5000),
        event("cuda_runtime", "cudaGraphLaunch", 150, 40, correlation=1),
        event("cuda_runtime", "cudaLaunchKernel", 250, 20, correlation=2),
        event("cuda_runtime", "cudaStreamSynchronize", 600, 200, correlation=3),
        event("cuda_runtime", "cudaMemcpyAsync", 950, 10, correlation=4),
        event("kernel", "product", 400, 5000, correlation=1),
        event("kernel", "attention", 5400, 1000, correlation=1),
        event("kernel", "argmax", 6400, 100, correlation=2),
        event("gpu_memcpy", "copy", 6500, 50, correlation=4),
        event("kernel", "of nobody", 0, 70, correlation=99),
        {"ph": "M", "name": "process_name"},
    ]
    found = {m.name: m for m in mechanisms(events)}
    assert {name: m.host_ms for name, m in found.items()} == {"decode": 0.5, "sampling": 0.3, "step": 0.2}
    assert {name: m.launch_ms for name, m in found.items()} == {"decode": 0.04, "sampling": 0.02, "step": 0.0}
    assert {name: m.device_ms for name, m in found.items()} == {"decode": 6.0, "sampling": 0.1, "step": 0.05}
    assert {m.calls for m in found.values()} == {1}


def test_mechanisms_of_one_name_that_touch_are_counted_each() -> None:
    events = [event("user_annotation", "mmcore.step", 10 * n, 10) for n in range(4)]
    (step,) = mechanisms(events)
    assert step.calls == 4
    assert step.host_ms == pytest.approx(0.04)


def test_the_table_adds_up_and_leaves_out_a_device_that_is_not_there() -> None:
    on_host = [Mechanism("decode", 3, 6.0, 0.0, 0.0), Mechanism("step", 4, 2.0, 0.0, 0.0)]
    assert [line.split() for line in profile_table(on_host).splitlines()] == [
        ["mechanism", "calls", "host", "ms", "of", "host"],
        ["decode", "3", "6.00", "75%"],
        ["step", "4", "2.00", "25%", "the", "host's", "bookkeeping"],
        ["all", "8.00", "100%"],
    ]
    on_gpu = [Mechanism("decode", 3, 6.0, 1.5, 9.0), Mechanism("wait", 3, 4.0, 0.0, 0.0)]
    assert profile_table(on_gpu).splitlines()[-1].split() == ["all", "10.00", "1.50", "9.00", "100%"]
