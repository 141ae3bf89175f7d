"""What the scheduler tells the runner, and what comes back: columns of ints, no token values.

One row of a batch is one scheduled sequence, named by its *slot*, an index into the runner's tables that a
sequence keeps from its first step to its end, preemption included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from mmcore.errors import MMCoreError
from mmcore.request import FinishReason, PreparedRequest

CopyKind = Literal["fork", "to_host", "to_device"]


@dataclass(frozen=True, slots=True)
class NewRequest:
    """A sequence the runner has not seen, told once.

    ``sequence`` counts the sequences of one request (``n``); all share ``request``.
    """

    slot: int
    sequence: int
    request: PreparedRequest


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """Copy a whole block, before anything is written in this step."""

    source: int
    target: int
    kind: CopyKind = "fork"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerOutput:
    """One step. Columns with the same prefix have the same length.

    Order of execution: finished and reset slots, new requests, advances, entries freed, block copies, new
    blocks, encode, write cross-KV, forward, sample.
    """

    step: int
    new_requests: Sequence[NewRequest] = ()
    finished_slots: Sequence[int] = ()
    """Sequences that ended since the last step; the runner forgets them."""
    reset_slots: Sequence[int] = ()
    """Preempted sequences: their block tables are empty again, their tokens stay."""

    advance_slots: Sequence[int] = ()
    advance_sources: Sequence[int] = ()
    advance_ids: Sequence[int] = ()
    """Beams: the slot's tokens become those its source had before this step, and one more."""

    row_slots: Sequence[int] = ()
    row_starts: Sequence[int] = ()
    """Index of the first token computed."""
    row_counts: Sequence[int] = ()
    """Tokens computed."""
    row_samples: Sequence[bool] = ()
    """Whether a token is sampled after the last of them."""

    block_slots: Sequence[int] = ()
    block_ids: Sequence[int] = ()
    """Blocks appended to the slot's table, in order, prefix hits included. A repeated (slot, index)
    never occurs; a copied tail is told by `swap_slots`."""
    swap_slots: Sequence[int] = ()
    swap_indices: Sequence[int] = ()
    swap_ids: Sequence[int] = ()
    """Entry ``index`` of the slot's table becomes this block (copy on write after a fork)."""
    copies: Sequence[BlockCopy] = ()

    encode_slots: Sequence[int] = ()
    encode_items: Sequence[int] = ()
    encode_entries: Sequence[int] = ()
    """Items to run through the encoder, and the encoder cache entry that takes their rows."""
    bind_slots: Sequence[int] = ()
    bind_items: Sequence[int] = ()
    bind_entries: Sequence[int] = ()
    """From now on the slot's item reads its rows from this entry (encoded now, or cached)."""
    freed_entries: Sequence[int] = ()
    """Encoder cache entries whose rows are dropped, before anything is encoded."""

    cross_slots: Sequence[int] = ()
    cross_blocks: Sequence[Sequence[int]] = ()
    cross_writes: Sequence[bool] = ()
    """Cross-KV blocks of the slot, whole; ``True``: compute and write them in this step."""

    wanted: Sequence[tuple[str, int]] = ()
    """(request id, item) whose cached rows are gone and whose preprocessing is needed after all."""

    @property
    def is_empty(self) -> bool:
        """Nothing for the device to compute."""
        return not self.row_slots and not self.encode_slots

    @property
    def num_tokens(self) -> int:
        return sum(self.row_counts)


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probability and logit of the chosen token; the likeliest ones as (id, logprob), best first."""

    chosen: float
    logit: float
    top: tuple[tuple[int, float], ...] = ()
    rank: int | None = 1
    """1: nothing was likelier; None: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRunnerOutput:
    """What one step gave, aligned with `SchedulerOutput.row_slots`.

    ``token_counts[i]`` ids of ``token_ids`` belong to row i: zero (no sample, or an error), one or several.
    """

    step: int
    token_counts: Sequence[int] = ()
    token_ids: Sequence[int] = ()
    logprobs: Mapping[int, Sequence[TokenLogprobs]] = field(default_factory=dict)
    """By row, one a token, where the request or its family's stop rule asked for them.

    A row of a beam gives no id: the scheduler chooses among the ``top`` of its one record."""
    errors: Mapping[int, MMCoreError] = field(default_factory=dict)
    """By slot: that request fails, alone."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """What a beam search came to: generated ids and the logprob of each."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    score: float
    """Sum of the logprobs / length ** length_penalty."""
    reason: FinishReason = "length"
    stop_reason: int | None = None


@dataclass(frozen=True, slots=True)
class EndedSequence:
    """A sequence that ended; nothing of it is scheduled again and all it held is free."""

    request_id: str
    sequence: int
    reason: FinishReason
    stop_reason: int | str | None = None
    """The stop id or stop string that ended it."""
    error: MMCoreError | None = None
    request_done: bool = False
    """No sequence of the request is left."""
    cached_tokens: int = 0
    encoded_items: int = 0
    """Of the request, so far; see `RequestOutput`."""
    hypothesis: Hypothesis | None = None
    """Of a beam search, which tells no token before its end; sequence 0 is the best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepUpdate:
    """What one step gave, by sequence: columns of the same length, and a record for each ended sequence.

    A stop id is among the new tokens; tokens that came after it are not.
    """

    step: int
    rows: Sequence[int] = ()
    """Index into the columns of the step's `SchedulerOutput` and `ModelRunnerOutput.logprobs`."""
    request_ids: Sequence[str] = ()
    sequences: Sequence[int] = ()
    token_counts: Sequence[int] = ()
    """At least one; so many ids of ``token_ids`` are new in that sequence."""
    token_ids: Sequence[int] = ()
    ended: Sequence[EndedSequence] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerStats:
    """Counters since the start, and what is held now."""

    steps: int
    preemptions: int
    prefix_hit_tokens: int
    encoder_hits: int
    encoder_misses: int
    cross_hits: int
    cross_blocks: int
    """Blocks taken for cross states that were not cached."""
    running: int
    waiting: int
    """Queued, preempted, or waiting for an item's preprocessing."""
    free_blocks: int
    """Blocks that could be given out now, cached ones included."""
    encoder_bytes: int
    """Held in the encoder cache, referenced or not."""
