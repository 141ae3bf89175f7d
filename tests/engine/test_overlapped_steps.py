"""With a step in flight: aborts, failures and requests that must know their last token change nobody else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcore.adapter import LogitsEdit
from mmcore.engine import Engine
from mmcore.errors import EncoderOutputError
from mmcore.request import EncoderInput, RequestOutput
from mmcore.runner.batch import UNKNOWN


@dataclass(frozen=True)
class Watching:
    """Sees the generated ids of each step; allows everything."""

    seen: list[tuple[int, ...]]
    needs_host_ids: bool

    def edit(self, generated: Sequence[int]) -> LogitsEdit:
        self.seen.append(tuple(generated))
        return LogitsEdit()


@dataclass(frozen=True)
class Ruled:
    """The family's decoding, with a rule for one request."""

    inner: Any
    request_id: str
    rule: Watching

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def logits_rules(self, request: Any) -> Any:
        return (self.rule,) if request.request_id == self.request_id else ()


def drive(
    engine: Engine, requests: Sequence[Any], aborts: Mapping[int, str] | None = None
) -> dict[str, RequestOutput]:
    """Outputs by request id; ``aborts`` names a request by the step before which it is aborted."""
    for request in requests:
        engine.add(request)
    outputs: dict[str, RequestOutput] = {}
    for step in range(2000):
        victim = (aborts or {}).get(step, "")
        reports = [engine.abort(victim)] if victim in engine else []
        if not engine.has_unfinished:
            break
        reports.append(engine.step())
        engine._scheduler.check_integrity()
        for report in reports:
            outputs |= {done.output.request_id: done.output for done in report.finished}
    assert not engine.has_unfinished
    assert not engine._in_flight
    assert engine._runner._encoder.num_inputs == 0
    stats = engine._scheduler.stats()
    assert stats.free_blocks == engine._scheduler._kv.pool.num_blocks
    return outputs


def tokens(engine: Engine, requests: Sequence[Any]) -> dict[str, tuple[int, ...]]:
    return {name: output.token_ids for name, output in drive(engine, requests).items()}


@pytest.mark.parametrize("name", ["pictures", "sounds"])
@settings(max_examples=12)
@given(
    aborts=st.dictionaries(st.integers(0, 14), st.integers(0, 7).map("r{}".format), max_size=5),
    budget=st.sampled_from([7, 64, 4096]),
    kv_tokens=st.sampled_from([112, 4096]),
)
def test_an_abort_changes_nobody_else(
    drives: Any, make_knobs: Any, name: str, aborts: dict[int, str], budget: int, kv_tokens: int
) -> None:
    tried = drives[name]
    requests = tried.family.requests[:8]
    knobs = {"max_num_tokens": budget, "kv_tokens": kv_tokens}
    expected = tokens(tried.engine(make_knobs(**knobs)), requests)
    outputs = drive(tried.engine(make_knobs(depth=1, graphs=True, **knobs)), requests, aborts)
    for request in requests:
        output = outputs[request.request_id]
        found, whole = output.token_ids, expected[request.request_id]
        aborted = output.outputs[0].finish_reason == "abort"
        assert found == (whole[: len(found)] if aborted else whole)
        assert aborted <= (request.request_id in aborts.values())


@pytest.mark.parametrize("name", ["pictures", "sounds"])
def test_a_request_that_fails_changes_nobody_else(drives: Any, make_knobs: Any, name: str) -> None:
    tried = drives[name]
    requests = tried.family.requests[1:6]
    expected = tokens(tried.engine(make_knobs(reuse=False)), requests)
    engine = tried.engine(make_knobs(depth=1, graphs=True, reuse=False))
    feed, victim = engine._runner.feed, requests[2].request_id

    def poisoned(request_id: str, item: int, data: EncoderInput) -> None:
        if request_id == victim:
            arrays = {key: np.full(array.shape, np.nan, np.float32) for key, array in data.arrays.items()}
            data = EncoderInput(arrays)
        feed(request_id, item, data)

    engine._runner.feed = poisoned
    changed = [replace(r, items=_own(r, n)) for n, r in enumerate(requests)]  # nobody finds another's rows
    outputs = drive(engine, changed)
    assert isinstance(outputs.pop(victim).error, EncoderOutputError)
    assert {key: output.token_ids for key, output in outputs.items()} == {
        key: ids for key, ids in expected.items() if key != victim
    }


def _own(request: Any, number: int) -> tuple[Any, ...]:
    return tuple(
        replace(item, encoder_key=bytes([number, index]) + item.encoder_key[2:])
        for index, item in enumerate(request.items)
    )


@pytest.mark.parametrize("knows", [True, False])
def test_only_who_must_know_its_tokens_leaves_the_overlap(drives: Any, make_knobs: Any, knows: bool) -> None:
    tried = drives["pictures"]
    requests = tried.family.requests[:4]
    expected = tokens(tried.engine(make_knobs()), requests)
    engine = tried.engine(make_knobs(depth=1))
    rule = Watching([], knows)
    decoding = Ruled(tried.family.adapter.decoding, "r1", rule)
    engine._adapter = replace(engine._adapter, decoding=decoding)
    engine._runner._sampling._decoding = decoding
    rows: list[set[int]] = []
    submit = engine._runner.submit

    def noted(output: Any) -> Any:
        rows.append(set(output.row_slots))
        return submit(output)

    engine._runner.submit = noted
    assert tokens(engine, requests) == expected
    whole = expected["r1"]
    wanted = [whole[:n] if knows or n == 0 else (*whole[: n - 1], UNKNOWN) for n in range(len(whole))]
    assert rule.seen[: len(wanted)] == wanted
    together = sum(len(before & after) == 4 for before, after in pairwise(rows))
    assert (together == 0) == knows
