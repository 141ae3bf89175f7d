"""Part 4 of an adapter, decoding: defaults, rules over token ids, and what becomes of the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from mmcore.request import PreparedRequest, Result

if TYPE_CHECKING:
    from mmcore.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingDefaults:
    """From ``generation_config.json``; a request's own `SamplingParams` win. None means greedy, no limit."""

    stop_ids: tuple[int, ...] = ()
    suppress_ids: tuple[int, ...] = ()
    first_suppress_ids: tuple[int, ...] = ()
    """Not allowed as the first generated token."""
    max_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    num_beams: int = 1
    length_penalty: float | None = None
    early_stopping: bool | Literal["never"] | None = None


@dataclass(frozen=True, slots=True)
class LogitsEdit:
    """What a rule does to the next token's logits."""

    allowed: tuple[int, ...] | None = None
    """Only these ids, None for all."""
    banned: tuple[int, ...] = ()
    banned_spans: tuple[tuple[int, int], ...] = ()
    """Ranges [a, b) of banned ids: their cost does not grow with their width."""
    bias: tuple[tuple[int, float], ...] = ()
    prefer: tuple[int, int] | None = None
    """If the ids [a, b) together are likelier than any single other id, only they stay allowed."""


class LogitsRule(Protocol):
    """A small state machine over the generated ids of one sequence."""

    @property
    def needs_host_ids(self) -> bool:
        """Takes its request, and only it, out of overlapped scheduling."""
        ...

    def edit(self, generated: Sequence[int]) -> LogitsEdit: ...


class StopRule(Protocol):
    """Sees each generated token; True ends the sequence after it."""

    def observe(self, token_id: int, logit: float, logprob: float) -> bool: ...


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Generation:
    """One finished sequence, as `Decoding.finish` sees it."""

    request: PreparedRequest
    ids: tuple[int, ...]
    """Generated tokens, the stop id included."""
    text: str
    logits: tuple[float, ...] = ()
    logprobs: tuple[float, ...] = ()
    """Of each generated token, as `StopRule.observe` saw them; empty without a stop rule."""
    previous: Result | None = None
    """What the earlier links of the chain came to; None in the first."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class FollowUp:
    """The next link of a chain: the same media, uuids and salt. The core lays it out and keys it anew.

    What is None stays as it was, so a link that only changes ``sampling`` keeps every key.
    """

    token_ids: tuple[int, ...] | None = None
    """A cross-attention family's decoder prompt; elsewhere a whole prompt, one placeholder id an item."""
    options: Mapping[str, Any] | None = None
    """Processor options of every item that take the place of its old ones (which window)."""
    sampling: SamplingParams | None = None


class Decoding(Protocol):
    """`mmcore.inputs.decoding.PlainDecoding` serves most families."""

    @property
    def defaults(self) -> DecodingDefaults: ...
    def prefix(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Decoder prefix of a cross-attention family, by a prompt's ``decoder_options``; else empty.

        Raises `UnsupportedOptionError` for a name or a value it does not know.
        """
        ...

    def logits_rules(self, request: PreparedRequest) -> tuple[LogitsRule, ...]: ...
    def stop_rule(self, request: PreparedRequest) -> StopRule | None:
        """A fresh rule for one sequence."""
        ...

    def finish(self, generation: Generation) -> Result:
        """Pure: what the family makes of a finished sequence, and of the links before it."""
        ...

    def follow_up(self, request: PreparedRequest, result: Result) -> FollowUp | None:
        """Pure: the next link of a chain (a next window, a fallback); None: ``result`` is the answer."""
        ...
