"""What a step gave: tokens are appended, sequences end, what was computed becomes shareable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Column
from itertools import accumulate, compress

from mmcore.core.beam_search import Candidates
from mmcore.core.beam_steps import BeamSteps
from mmcore.core.encoder_cache_manager import EncoderCacheManager
from mmcore.core.kv_cache_manager import KVCacheManager
from mmcore.core.output import EndedSequence, ModelRunnerOutput, StepUpdate
from mmcore.core.sequence import RequestState, Sequence
from mmcore.core.sequence_table import SequenceTable
from mmcore.core.step_plan import StepPlan
from mmcore.errors import EngineError, MMCoreError, RequestError


class StepResults:
    """Applies a `ModelRunnerOutput` to the step that it answers."""

    def __init__(
        self, table: SequenceTable, kv: KVCacheManager, encoder: EncoderCacheManager, beams: BeamSteps
    ) -> None:
        self._table = table
        self._beams = beams
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
        self._register_chunks(plan)
        counts = list(result.token_counts)
        if counts == plan.row_samples:
            late = self._append_regular(compress(plan.rows, counts), result.token_ids)
            taken = (
                [0 if s in late else n for s, n in zip(plan.rows, counts, strict=True)] if late else counts
            )
        else:
            taken = self._append_irregular(plan, counts, result)
        sequences = list(compress(plan.rows, taken))
        return StepUpdate(
            step=plan.step,
            rows=list(compress(range(len(taken)), taken)),
            request_ids=[sequence.request_id for sequence in sequences],
            sequences=[sequence.index for sequence in sequences],
            token_counts=list(compress(taken, taken)),
            token_ids=result.token_ids if taken == counts else _first_ids(result, taken),
            ended=self._ended,
        )

    def _register_chunks(self, plan: StepPlan) -> None:
        """Blocks that prompts have filled; those of decode rows follow with their token."""
        for row, count, _ in plan.chunks:
            sequence, end = plan.rows[row], plan.row_starts[row] + count
            if end >= sequence.register_at:
                self._kv.register(sequence, end)

    def _append_regular(self, sequences: Iterable[Sequence], token_ids: Iterable[int]) -> list[Sequence]:
        """One token each: the hot loop looks at nothing that seldom changes. Gives those that had ended."""
        late: list[Sequence] = []
        for sequence, token in zip(sequences, token_ids, strict=True):
            known = sequence.token_ids
            known.append(token)
            if token in sequence.stop_ids or len(known) >= sequence.check_at:
                if sequence.has_ended:
                    late.append(sequence)
                else:
                    self._check(sequence, token, len(known) - 1)
        return late

    def _append_irregular(self, plan: StepPlan, counts: list[int], result: ModelRunnerOutput) -> list[int]:
        """Some row gave several tokens, a beam's candidates, or not what it was to give. Gives how many each
        row's were taken."""
        taken = []
        positions = accumulate(counts, initial=0)
        rows = zip(
            plan.rows, plan.row_starts, plan.row_counts, plan.row_samples, counts, positions, strict=False
        )
        for row, (sequence, start, computed, samples, count, position) in enumerate(rows):
            if sequence.request.beams is not None and samples and row in result.logprobs:
                taken.append(0)
                self._report_beam(sequence, start + computed, result.logprobs[row][0].top)
                continue
            tokens = result.token_ids[position : position + count]
            fault = "" if sequence.has_ended else _fault(sequence, start + computed, tokens, samples)
            if fault:
                self._end_request(sequence.request, RequestError(f"request {sequence.request_id!r}: {fault}"))
            taken.append(0 if sequence.has_ended else self._take(sequence, tokens, start + computed))
        return taken

    def _report_beam(self, sequence: Sequence, computed: int, candidates: Candidates) -> None:
        if not sequence.has_ended:
            self._ended += self._beams.report(sequence, computed, candidates)

    def _take(self, sequence: Sequence, tokens: Column[int], computed: int) -> int:
        """Append tokens up to the one that ends the sequence; all but the last are still to be computed."""
        for taken, token in enumerate(tokens, start=1):
            sequence.token_ids.append(token)
            self._check(sequence, token, computed)
            if sequence.has_ended:
                return taken
        if len(tokens) > 1:
            sequence.is_decoding = False
            sequence.decode_limit = 0
        return len(tokens)

    def _check(self, sequence: Sequence, token: int, computed: int) -> None:
        """A block is full, or the token may be the last one."""
        if computed >= sequence.register_at:
            self._kv.register(sequence, computed)
        if token in sequence.stop_ids or len(sequence.token_ids) >= sequence.look_at:
            self._check_end(sequence, token)

    def _check_end(self, sequence: Sequence, token: int) -> None:
        stop, generated = sequence.request.stop, sequence.num_generated
        if sequence.index == 0:
            self._table.fork(sequence)
            sequence.look_from(stop.max_tokens)
        if token in stop.stop_ids and generated >= stop.min_tokens:
            self._ended.append(self._table.end(sequence, "stop", token))
        elif generated >= stop.max_tokens:
            self._ended.append(self._table.end(sequence, "length"))


def _first_ids(result: ModelRunnerOutput, taken: list[int]) -> list[int]:
    """Of each row's ids the first so many."""
    ids: list[int] = []
    for position, count in zip(accumulate(result.token_counts, initial=0), taken, strict=False):
        ids += result.token_ids[position : position + count]
    return ids


def _fault(sequence: Sequence, computed: int, tokens: Column[int], samples: bool) -> str:
    if samples and not tokens:
        return "the runner gave neither a token nor an error for its row"
    if tokens and not samples:
        return f"the runner gave {len(tokens)} tokens for a row that samples none"
    if len(tokens) > 1 and sequence.num_computed_tokens > computed:
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
