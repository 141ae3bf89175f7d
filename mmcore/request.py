"""The records that cross rooms on a request's way through the house.

Frozen, made of ints, strings, bytes and numpy arrays, so that a process boundary may run between any two
rooms. Importing this module imports neither numpy nor torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np

    from mmcore.errors import MMCoreError
    from mmcore.sampling_params import SamplingParams

Modality = str
"""``"image"``, ``"audio"`` or ``"video"``; a plugin may take others."""

FinishReason = Literal["stop", "length", "abort", "error"]

# ------------------------------------------------------------------ prompts


@dataclass(frozen=True, slots=True)
class TextPart:
    text: str


@dataclass(frozen=True, slots=True)
class MediaPart:
    """A place in a message for the request's next medium of this modality."""

    modality: Modality


@dataclass(frozen=True, slots=True)
class Message:
    """One turn: what a chat template renders."""

    role: str
    content: tuple[TextPart | MediaPart, ...]


@dataclass(frozen=True, slots=True)
class TextSegment:
    """Text to tokenise. ``trusted`` text comes from a template: its special tokens are active."""

    text: str
    trusted: bool = False


@dataclass(frozen=True, slots=True)
class MediaSegment:
    """A media slot. ``index`` counts the request's items of this modality, from 0, in prompt order."""

    modality: Modality
    index: int


Segment = TextSegment | MediaSegment

# ------------------------------------------------------------------ media


@dataclass(frozen=True, slots=True)
class MediaInfo:
    """What a header says before anything is decoded. Unused fields are 0."""

    modality: Modality
    width: int = 0
    height: int = 0
    frames: int = 0
    seconds: float = 0.0
    sample_rate: int = 0
    samples: int = 0
    """Audio samples a channel at ``sample_rate``."""


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """What the core shall decode for an item."""

    mode: str = "RGB"
    frames: tuple[int, ...] = ()
    """Of a video, by number as they are shown; none: all."""
    size: tuple[int, int] | None = None
    """Height and width to which each frame of a video is resized (bicubic) while decoding; None: as it is."""
    sample_rate: int = 0
    start: int = 0
    """First sample, at the target ``sample_rate``."""
    stop: int | None = None
    """One past the last sample; None for all."""


@dataclass(frozen=True, eq=False, slots=True)
class DecodedMedia:
    """Normalised media, the only kind a plugin ever sees.

    image: uint8 [height, width, 3]. video: uint8 [frames, height, width, 3] with ``times`` in seconds.
    audio: float32 [samples], mono, at ``sample_rate``. Requests share them: nobody writes to ``data``.
    """

    modality: Modality
    data: np.ndarray
    sample_rate: int = 0
    times: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Rows:
    """``count`` consecutive encoder rows of an item."""

    count: int


@dataclass(frozen=True, slots=True)
class Tokens:
    """Ordinary tokens between the rows of an item."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ItemPlan:
    """What one item becomes, known from its header alone."""

    pieces: tuple[Rows | Tokens, ...]
    """In prompt order; empty in cross-attention families, whose rows take no placeholder positions."""
    rows: int
    width: int
    """Elements of one row; need not be the hidden size (several feature levels)."""
    geometry: tuple[int, ...] = ()
    """The family's own numbers (grid, tiles, frames); part of the key."""
    times: tuple[float, ...] = ()
    """Seconds that positions or timestamps need (of each frame, or a step); part of the key."""
    source: SourceSpec = SourceSpec()
    atomic: bool = False
    """Its placeholder ranges must not be cut by a chunk."""


@dataclass(frozen=True, slots=True)
class EncodeCost:
    """``work`` in floating point operations, ``output_bytes`` held in the encoder cache.

    An encoder leaves ``output_bytes`` at 0: the core fills in rows x width x the tower's element size.
    """

    work: int
    output_bytes: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class EncoderInput:
    """One item, preprocessed: named arrays, as `Encoder.collate` takes them."""

    arrays: Mapping[str, np.ndarray]


# ------------------------------------------------------------------ prepared requests


@dataclass(frozen=True, slots=True)
class PlaceholderRange:
    """Token positions [offset, offset + length) take rows [row, row + length) of item ``item``."""

    offset: int
    length: int
    item: int
    row: int


@dataclass(frozen=True, eq=False, slots=True)
class EncodedSource:
    """A file's bytes, to be decoded by the core as the item's plan says."""

    data: bytes


@dataclass(frozen=True, eq=False, slots=True)
class ArraySource:
    """Media already decoded by the caller."""

    media: DecodedMedia


@dataclass(frozen=True, eq=False, slots=True)
class ReadyRows:
    """Encoder rows computed elsewhere: float [rows, width]."""

    rows: np.ndarray


ItemSource = EncodedSource | ArraySource | ReadyRows


@dataclass(frozen=True, eq=False, slots=True)
class PreparedItem:
    """One medium of a request: where it came from, what it becomes, and under which keys."""

    modality: Modality
    source: ItemSource
    content_digest: bytes
    """Of the content as the caller gave it: a follow-up keys the same medium without reading it again."""
    plan: ItemPlan
    cost: EncodeCost
    processor_key: bytes
    encoder_key: bytes
    options: tuple[tuple[str, Any], ...] = ()
    """Validated per-request processor options, sorted by name."""
    uuid: str = ""
    """The client's name for it, mixed into the keys."""


@dataclass(frozen=True, eq=False, slots=True)
class TokenPositions:
    """Rotary positions of a whole prompt: int32 [axes, tokens]; token i past the end is at i + delta."""

    values: np.ndarray
    delta: int


@dataclass(frozen=True, slots=True)
class CrossStates:
    """The cross-attention states of a request: ``length`` rows, paged under ``key``."""

    key: bytes
    length: int
    text_ids: tuple[int, ...] = ()
    """Tokens that the context stage reads beside the item rows."""
    work: int = 0
    """What the context stage takes of a step's encoder work, in floating point operations."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class PreparedRequest:
    """A request that needs nothing more from its caller: what `preprocess()` returns and an engine takes."""

    request_id: str
    token_ids: tuple[int, ...]
    sampling: SamplingParams
    root_key: bytes
    """Root of the block key chain: checkpoint digest, KV dtype, salt, and the cross key if there is one."""
    items: tuple[PreparedItem, ...] = ()
    ranges: tuple[PlaceholderRange, ...] = ()
    """Of all items, ordered by offset, disjoint."""
    positions: TokenPositions | None = None
    cross: CrossStates | None = None
    decoder_options: tuple[tuple[str, Any], ...] = ()
    """The prompt's options of the decoder prefix (language, task), sorted by name; in no key."""
    salt: str = ""
    priority: int = 0
    """Lower runs first."""
    bad_words: tuple[tuple[int, ...], ...] = ()
    """What ``sampling`` bans, as ids; the engine fills it in."""

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)


# ------------------------------------------------------------------ results


@dataclass(frozen=True, slots=True)
class Result:
    """What a family makes of the generated tokens. ``fields`` are its extras (language, segments)."""

    text: str
    fields: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class RequestTimings:
    """Seconds on the monotonic clock; 0.0 where the moment has not come."""

    arrived: float = 0.0
    prepared: float = 0.0
    scheduled: float = 0.0
    first_token: float = 0.0
    finished: float = 0.0


@dataclass(frozen=True, slots=True)
class Logprob:
    """Of a token among all that could have come; ``rank`` 1 is the likeliest."""

    logprob: float
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One sequence of a request."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    """The stop id or stop string that ended it."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    logprobs: tuple[Mapping[int, Logprob], ...] | None = None
    """By token, where `SamplingParams.logprobs` asks: the chosen one and the likeliest ones."""
    cumulative_logprob: float | None = None
    """Sum of the chosen tokens' logprobs, where they were asked for or sequences were ranked by them."""


@dataclass(frozen=True, slots=True, repr=False)
class RequestOutput:
    """The answer to one prompt, whole or so far."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[CompletionOutput, ...]
    finished: bool
    cached_tokens: int = 0
    """Prompt tokens whose KV came from the prefix cache."""
    encoded_items: int = 0
    """Items this request ran through the encoder; the rest came from a cache."""
    timings: RequestTimings = RequestTimings()
    error: MMCoreError | None = None

    @property
    def text(self) -> str:
        """Text of the first sequence. Raises the request's error where it failed."""
        return self[0].text

    @property
    def token_ids(self) -> tuple[int, ...]:
        return self[0].token_ids

    def __getitem__(self, index: int) -> CompletionOutput:
        if self.error is not None:
            raise self.error
        return self.outputs[index]

    def __len__(self) -> int:
        return len(self.outputs)

    def __repr__(self) -> str:
        """On one line, whatever its length: who, how it ended, how many tokens, how the text begins."""
        if self.error is not None:
            return f"RequestOutput({self.request_id!r}, error={self.error!r})"
        answers = ", ".join(
            f"{o.finish_reason or 'running'} after {len(o.token_ids)} tokens: {shorten(o.text)!r}"
            for o in self.outputs
        )
        return f"RequestOutput({self.request_id!r}, {answers})"


def shorten(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def text_of(content: Sequence[TextPart | MediaPart]) -> str:
    """The words of a message, without its media."""
    return "".join(part.text for part in content if isinstance(part, TextPart))
