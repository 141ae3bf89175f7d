"""What a step gave: tokens are appended, sequences end, what was computed becomes shareable."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Column

from mmcore.core.encoder_cache_manager import EncoderCacheManager
from mmcore.core.kv_cache_manager import KVCacheManager
from mmcore.core.output import EndedSequence, ModelRunnerOutput, StepUpdate
from mmcore.core.sequence import RequestState, Sequence
from mmcore.core.sequence_table import SequenceTable
from mmcore.core.step_plan import StepPlan
from mmcore.errors import EngineError, MMCoreError, RequestError


class StepResults:
    """Applies a `ModelRunnerOutput` to the step that it answers."""

    def __init__(self, table: SequenceTable, kv: KVCacheManager, encoder: EncoderCacheManager) -> None:
        self._table = table
        self._kv = kv
        self._encoder = encoder
        self._ended: list[EndedSequence] = []

    def apply(self, plan: StepPlan, result: ModelRunnerOutput) -> StepUpdate:
        _check_answer(plan, result)
        self._ended = []
        self._end_failed(plan, result.errors)
        self._settle_media(plan)
        return self._append_tokens(plan, result)

    # ------------------------------------------------------------------ faults and media

    def _end_failed(self, plan: StepPlan, errors: Mapping[int, MMCoreError]) -> None:
        """A failed row ends its request, and nothing else."""
        if not errors:
            return
        requests = {slot: s.request for slot, s in zip(plan.row_slots, plan.rows, strict=True)}
        for slot, error in errors.items():
            if slot not in requests:
                raise EngineError(
                    f"the runner reports an error for slot {slot}, which step {plan.step} has not"
                )
            self._end_request(requests[slot], error)

    def _end_request(self, request: RequestState, error: MMCoreError) -> None:
        request.has_failed = True
        if request.num_left:
            self._ended += self._table.end_request(request, "error", error)

    def _settle_media(self, plan: StepPlan) -> None:
        """What the step wrote may be shared now, unless its writer failed in this step or before."""
        for sequence, _, entry in plan.encodes:
            if sequence.request.has_failed:
                self._encoder.discard(entry)
            else:
                self._encoder.confirm(entry)
        for sequence, blocks in plan.cross_writers:
            self._kv.cross_came_back(sequence, blocks)

    # ------------------------------------------------------------------ tokens

    def _append_tokens(self, plan: StepPlan, result: ModelRunnerOutput) -> StepUpdate:
        """The hot loop: one pass over the rows, a look at nothing that seldom changes."""
        rows: list[int] = []
        request_ids: list[str] = []
        indices: list[int] = []
        counts: list[int] = []
        tokens: list[int] = []
        given = result.token_ids
        after = 0
        columns = zip(
            plan.rows, plan.row_starts, plan.row_counts, plan.row_samples, result.token_counts, strict=True
        )
        for row, (sequence, start, computed, samples, count) in enumerate(columns):
            before, after = after, after + count
            if sequence.has_ended:
                continue
            if start + computed >= sequence.register_at:
                self._kv.register(sequence, start + computed)
            if count != samples:
                count = self._take_irregular(sequence, start + computed, given[before:after], samples)
            elif count:
                token = given[before]
                known = sequence.token_ids
                known.append(token)
                if token in sequence.stop_ids or len(known) >= sequence.check_at:
                    self._check_end(sequence, token)
            if count:
                rows.append(row)
                request_ids.append(sequence.request_id)
                indices.append(sequence.index)
                counts.append(count)
                tokens += given[before : before + count]
        return StepUpdate(
            step=plan.step,
            rows=rows,
            request_ids=request_ids,
            sequences=indices,
            token_counts=counts,
            token_ids=tokens,
            ended=self._ended,
        )

    def _take_irregular(self, sequence: Sequence, computed: int, tokens: Column[int], samples: bool) -> int:
        """Several ids, or not what the row was to give. Gives how many were taken."""
        fault = _fault(sequence, computed, tokens, samples)
        if fault:
            self._end_request(sequence.request, RequestError(f"request {sequence.request_id!r}: {fault}"))
            return 0
        for taken, token in enumerate(tokens, start=1):
            sequence.token_ids.append(token)
            self._check_end(sequence, token)
            if sequence.has_ended:
                return taken
        sequence.is_decoding = False  # all but the last are still to be computed
        sequence.decode_limit = 0
        return len(tokens)

    def _check_end(self, sequence: Sequence, token: int) -> None:
        request, stop = sequence.request, sequence.request.stop
        if sequence.index == 0:
            self._table.fork(sequence)
            sequence.check_at = request.prepared.num_tokens + stop.max_tokens
        generated = sequence.num_generated
        if token in stop.stop_ids and generated >= stop.min_tokens:
            self._ended.append(self._table.end(sequence, "stop", token))
        elif generated >= stop.max_tokens:
            self._ended.append(self._table.end(sequence, "length"))


def _fault(sequence: Sequence, computed: int, tokens: Column[int], samples: bool) -> str:
    if samples and not tokens:
        return "the runner gave neither a token nor an error for its row"
    if not samples:
        return f"the runner gave {len(tokens)} tokens for a row that samples none"
    if sequence.num_computed_tokens > computed:
        return f"the runner gave {len(tokens)} tokens, and the step after the first is in flight already"
    return ""


def _check_answer(plan: StepPlan, result: ModelRunnerOutput) -> None:
    if result.step != plan.step:
        raise EngineError(
            f"the runner answers step {result.step}; step {plan.step} is the oldest without an answer"
        )
    if len(result.token_counts) != len(plan.rows) or sum(result.token_counts) != len(result.token_ids):
        raise EngineError(
            f"step {plan.step} has {len(plan.rows)} rows; the runner answers {len(result.token_counts)} rows"
            f" with {len(result.token_ids)} of {sum(result.token_counts)} token ids"
        )
