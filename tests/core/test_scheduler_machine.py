"""Anything may happen to the scheduler, in any order, in pools of any size: what DESIGN promises holds."""

from __future__ import annotations

from typing import Any

from core.harness import Harness, Sizes
from core.strategies import requests, sizes, stops
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mmcore.core.sequence import StopConditions
from mmcore.errors import MediaFetchError, RequestTooLargeError
from mmcore.request import PreparedRequest

SETTINGS = ("KvCacheConfig.max_tokens", "encoder_cache_bytes", "max_num_tokens", "max_batch_size")


class SchedulerMachine(RuleBasedStateMachine):
    """The harness compares every computed token, every answer and every budget with the right ones."""

    harness: Harness

    @initialize(sizes=sizes(), overlap=st.booleans())
    def begin(self, sizes: Sizes, overlap: bool) -> None:
        self.harness = Harness(sizes, overlap=overlap)
        self.num_added = 0
        self.refusals: list[str] = []

    def _draw_live(self, data: Any) -> str:
        return str(data.draw(st.sampled_from(sorted(self.harness.live)), label="request"))

    @rule(data=st.data(), stop=stops(), ready=st.booleans())
    def add(self, data: Any, stop: StopConditions, ready: bool) -> None:
        self.num_added += 1
        request: PreparedRequest = data.draw(requests(f"r{self.num_added}"))
        try:
            self.harness.add(request, stop, ready=ready)
        except RequestTooLargeError as error:
            self.refusals.append(str(error))

    @precondition(lambda self: any(live.pending for live in self.harness.live.values()))
    @rule(data=st.data(), fails=st.sampled_from((False, False, True)))
    def item_arrives(self, data: Any, fails: bool) -> None:
        pending = sorted((name, item) for name, live in self.harness.live.items() for item in live.pending)
        name, item = data.draw(st.sampled_from(pending), label="item")
        if fails:
            self.harness.fail_item(name, item, MediaFetchError("not there"))
        else:
            self.harness.ready(name, item)

    @rule(times=st.integers(1, 4))
    def step(self, times: int) -> None:
        for _ in range(times):
            self.harness.step()

    @precondition(lambda self: self.harness.scheduler.has_ready_work)
    @rule(slots=st.frozensets(st.integers(0, 3), min_size=1, max_size=2))
    def step_with_a_fault(self, slots: frozenset[int]) -> None:
        self.harness.step(failing=slots)

    @precondition(lambda self: self.harness.outputs)
    @rule()
    def answer(self) -> None:
        self.harness.update()

    @precondition(lambda self: self.harness.live)
    @rule(data=st.data())
    def abort(self, data: Any) -> None:
        self.harness.abort(self._draw_live(data))

    @precondition(lambda self: self.harness.live)
    @rule(data=st.data(), sequence=st.integers(0, 2))
    def finish(self, data: Any, sequence: int) -> None:
        self.harness.finish(self._draw_live(data), sequence)

    @rule()
    def drain(self) -> None:
        self.harness.run()

    @invariant()
    def integrity(self) -> None:
        if hasattr(self, "harness"):
            self.harness.scheduler.check_integrity()
            assert all(any(setting in refusal for setting in SETTINGS) for refusal in self.refusals)

    def teardown(self) -> None:
        if hasattr(self, "harness"):
            self.harness.run()


TestSchedulerMachine = SchedulerMachine.TestCase
