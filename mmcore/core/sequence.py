"""The state of a request and of its sequences inside the scheduler."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from enum import Enum

from mmcore.core.beam_group import BeamGroup
from mmcore.core.encoder_cache_manager import EncoderEntry
from mmcore.core.media_layout import MediaLayout
from mmcore.request import PreparedRequest

NEVER = sys.maxsize


class ItemState(Enum):
    """What is known of an item's preprocessed arrays."""

    PENDING = "pending"
    """Being fetched or preprocessed."""
    READY = "ready"
    """With the runner, until the request ends."""
    ABSENT = "absent"
    """Not asked for: its rows, or all that is computed from them, were cached at admission."""


class Place(Enum):
    """Where a sequence is. Only a running one holds blocks or encoder entries."""

    WAITING = "waiting"
    PARKED = "parked"
    """Its request waits for an item's preprocessing."""
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class StopConditions:
    """When a sequence ends by its tokens alone."""

    stop_ids: frozenset[int]
    max_tokens: int
    min_tokens: int = 0
    """Before so many generated tokens a stop id does not end it."""
    overlaps: bool = True
    """False: a token is computed only once the one before it is known."""


@dataclass(slots=True, eq=False)
class RequestState:
    """One request: what its sequences share."""

    prepared: PreparedRequest
    stop: StopConditions
    order: tuple[int, int]
    layout: MediaLayout
    prompt_keys: list[bytes]
    """Block keys of the prompt's full blocks; empty without reuse."""
    items: list[ItemState]
    sequences: list[Sequence] = field(default_factory=list)
    """Those begun so far; the others fork when the first has computed the prompt."""
    num_pending: int = 0
    """Items that are `PENDING`."""
    num_left: int = 1
    """Sequences that have not ended, those not begun included."""
    cached_tokens: int = 0
    encoded_items: int = 0
    has_failed: bool = False
    beams: BeamGroup | None = None


@dataclass(slots=True, eq=False)
class Sequence:
    """One sequence of a request.

    It catches up: ``num_computed_tokens`` counts the tokens whose KV is written by the steps laid out so far,
    and each step moves it towards `target`. The last token of an in-flight step counts before it is known.
    """

    request: RequestState
    index: int
    token_ids: list[int]
    """Known tokens, prompt and generated."""
    block_keys: list[bytes]
    """Keys of the first full blocks, as far as they were needed."""
    look_at: int
    """From so many known tokens on, each new one may be the last, or begins the sequences of ``n``."""
    check_at: int = field(init=False)
    """From so many known tokens on, something is to be done: `look_at`, or a block is full."""
    request_id: str = field(init=False)
    order: tuple[int, int, int] = field(init=False)
    """Lower runs first and is preempted last."""
    stop_ids: frozenset[int] = field(init=False)
    last_position: int = field(init=False)
    """Position of the last token that may be generated: it is never computed."""

    place: Place = Place.WAITING
    has_ended: bool = False
    slot: int = -1
    num_computed_tokens: int = 0
    is_undecided: bool = False
    """A beam whose candidates are there while those of the others are not."""
    is_decoding: bool = False
    """The token after the last computed one was sampled, or will be by a step in flight."""
    decode_limit: int = 0
    """Below this position the next token can be computed without a new block: the step's fast path."""
    blocks: list[int] = field(default_factory=list)
    is_forked: bool = False
    """The blocks it writes next may be shared; whoever writes first copies."""
    cross_blocks: list[int] = field(default_factory=list)
    is_cross_written: bool = True
    num_registered: int = 0
    """Leading blocks whose content is known to the pool."""
    register_at: int = NEVER
    """So many tokens computed fill the next block."""
    held: dict[int, EncoderEntry] = field(default_factory=dict)
    """Encoder entries by item, until the item's last row is computed."""
    is_known: bool = False
    """The runner has been told of it, and of so many of its blocks:"""
    num_known_blocks: int = 0

    def __post_init__(self) -> None:
        prepared, stop = self.request.prepared, self.request.stop
        self.check_at = self.look_at
        self.request_id = prepared.request_id
        self.order = (*self.request.order, self.index)
        self.stop_ids = stop.stop_ids
        self.last_position = prepared.num_tokens + stop.max_tokens - 1

    def __lt__(self, other: Sequence) -> bool:
        return self.order < other.order

    @property
    def target(self) -> int:
        """Tokens to compute before the next one can be sampled."""
        return self.num_computed_tokens + 1 if self.is_decoding else len(self.token_ids)

    @property
    def must_know(self) -> bool:
        """Its next token is still with the device, and it does not go on without knowing it."""
        return not self.request.stop.overlaps and self.num_computed_tokens >= len(self.token_ids)

    @property
    def num_slots(self) -> int:
        """Slots that it takes to join: a beam search has them for all its beams."""
        return 1 if self.request.beams is None else self.request.beams.width

    @property
    def num_generated(self) -> int:
        return len(self.token_ids) - self.request.prepared.num_tokens

    def look_from(self, num_generated: int) -> None:
        self.look_at = self.request.prepared.num_tokens + num_generated
        self.check_at = min(self.look_at, self.register_at + 1)

    def register_from(self, num_tokens: int) -> None:
        """So many tokens computed fill the next block that is not registered yet."""
        self.register_at = num_tokens
        self.check_at = min(self.look_at, num_tokens + 1)

    def forget_progress(self) -> None:
        """Nothing is computed any more; the known tokens stay."""
        self.blocks, self.cross_blocks, self.held = [], [], {}
        self.num_computed_tokens = self.decode_limit = self.num_registered = self.num_known_blocks = 0
        self.is_decoding = self.is_forked = False
        self.is_cross_written = True
        self.register_from(NEVER)


def first_sequence(request: RequestState) -> Sequence:
    """Sequence 0. With ``n`` the others begin at its first token, so that one is looked at."""
    prompt = request.prepared.num_tokens
    forks = request.prepared.sampling.num_sequences > 1
    sequence = Sequence(
        request=request,
        index=0,
        token_ids=list(request.prepared.token_ids),
        block_keys=list(request.prompt_keys),
        look_at=prompt + (1 if forks else request.stop.max_tokens),
    )
    request.sequences.append(sequence)
    return sequence


def next_sequence(request: RequestState, slot: int = -1) -> Sequence:
    """The next of ``n``, or the next beam, with nothing but the prompt."""
    sequence = Sequence(
        request=request,
        index=len(request.sequences),
        token_ids=list(request.prepared.token_ids),
        block_keys=list(request.prompt_keys),
        look_at=request.prepared.num_tokens + request.stop.max_tokens,
        slot=slot,
    )
    request.sequences.append(sequence)
    return sequence
