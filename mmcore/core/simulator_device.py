"""The runner's stand-in: says when each answer ends, and how much each step computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mmcore.core.output import ModelRunnerOutput, NewRequest, SchedulerOutput
from mmcore.core.sequence import StopConditions
from mmcore.core.simulator_cost import StepWork
from mmcore.errors import RequestError
from mmcore.request import PreparedRequest

STOP_ID = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRequest:
    """A request, and what will become of it. Times in simulated seconds."""

    prepared: PreparedRequest
    arrival: float
    answer_tokens: int
    """With its stop token; ``max_tokens`` may come first."""
    max_tokens: int
    abort_after: float | None = None
    """The caller gives up so long after the arrival."""
    broken_items: frozenset[int] = frozenset()
    """Their preprocessing fails."""
    late_items: Mapping[int, float] = field(default_factory=dict)
    """Seconds that their preprocessing takes longer than others'."""
    fails_at: int | None = None
    """The runner fails at this token of the answer."""

    @property
    def stop(self) -> StopConditions:
        return StopConditions(frozenset({STOP_ID}), self.max_tokens)

    @property
    def expected_tokens(self) -> int:
        return min(self.answer_tokens, self.max_tokens)


class SimulatedDevice:
    """Keeps what a runner keeps of each slot: enough to sample by position alone."""

    def __init__(self, slots: int, find: Callable[[str], SimulatedRequest]) -> None:
        self._find = find
        self._requests: list[SimulatedRequest | None] = [None] * slots
        self._last = [0] * slots
        """Position of the token that is the stop token, or the fault."""
        self._tokens = [0] * slots
        self.num_known = 0

    def execute(self, output: SchedulerOutput) -> tuple[ModelRunnerOutput, StepWork]:
        self._admit(output)
        ends = [s + n for s, n in zip(output.row_starts, output.row_counts, strict=True)]
        counts, tokens, errors = [], [], {}
        for slot, end, samples in zip(output.row_slots, ends, output.row_samples, strict=True):
            is_last = end >= self._last[slot]
            if samples and is_last and self._request(slot).fails_at is not None:
                errors[slot] = RequestError("a simulated fault")
                samples = False
            counts.append(int(samples))
            if samples:
                tokens.append(STOP_ID if is_last else self._tokens[slot])
        result = ModelRunnerOutput(step=output.step, token_counts=counts, token_ids=tokens, errors=errors)
        return result, StepWork.of(output, self._encoder_work(output))

    def _admit(self, output: SchedulerOutput) -> None:
        for slot in output.finished_slots:
            self._requests[slot] = None
            self.num_known -= 1
        for new in output.new_requests:
            self._add(new, self._find(new.request.request_id))
            self.num_known += 1

    def _add(self, new: NewRequest, request: SimulatedRequest) -> None:
        answer = request.answer_tokens if request.fails_at is None else request.fails_at
        self._requests[new.slot] = request
        self._last[new.slot] = new.request.num_tokens + answer - 1
        self._tokens[new.slot] = 2 + new.sequence

    def _request(self, slot: int) -> SimulatedRequest:
        request = self._requests[slot]
        assert request is not None, f"slot {slot} is scheduled and the runner was not told of it"
        return request

    def _encoder_work(self, output: SchedulerOutput) -> int:
        encodes = zip(output.encode_slots, output.encode_items, strict=True)
        return sum(self._request(slot).prepared.items[item].cost.work for slot, item in encodes)
