"""What a request's own options do to its rows of logits: bias, penalties, bad words.

All of it works on columns: rows without an option are not touched, and the state that penalties and bad words
read stays on the device (`mmcore.runner.token_history`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False, slots=True)
class Bias:
    """Of N cells: ``values`` float32 are added to logits [rows, ids]; int64 each."""

    rows: Tensor
    ids: Tensor
    values: Tensor


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Penalties:
    """Of P rows. A repetition penalty of 1 and others of 0 change nothing."""

    rows: Tensor  # int64 [P], of the logits
    places: Tensor  # int64 [P], of the history's tables
    repetition: Tensor  # float32 [P]
    frequency: Tensor  # float32 [P]
    presence: Tensor  # float32 [P]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class BadWords:
    """Of N words: ``last`` is impossible where the tokens before it are ``prefix``."""

    rows: Tensor  # int64 [N], of the logits
    places: Tensor  # int64 [N], of the history's tables
    prefix: Tensor  # int64 [N, K], -1: any token
    last: Tensor  # int64 [N]


def add_bias(logits: Tensor, bias: Bias) -> None:
    """In place on float32 logits [R, V]."""
    logits.index_put_((bias.rows, bias.ids), bias.values, accumulate=True)


def penalise(logits: Tensor, penalties: Penalties, in_prompt: Tensor, counts: Tensor) -> None:
    """In place on float32 logits [R, V].

    ``in_prompt`` bool and ``counts`` int32, [places, V]: whether a token is in the prompt, and how often in
    the answer. As ``RepetitionPenaltyLogitsProcessor`` of transformers 5, then frequency and presence as in
    OpenAI's API.
    """
    picked, count = logits[penalties.rows], counts[penalties.places]  # [P, V]
    generated = count > 0
    repetition = penalties.repetition.unsqueeze(1)
    repeated = picked.where(
        generated.logical_not() & ~in_prompt[penalties.places], _repeated(picked, repetition)
    )
    repeated -= penalties.frequency.unsqueeze(1) * count
    repeated -= penalties.presence.unsqueeze(1) * generated
    logits[penalties.rows] = repeated


def _repeated(logits: Tensor, penalty: Tensor) -> Tensor:
    return (logits / penalty).where(logits > 0, logits * penalty)


def ban_words(logits: Tensor, words: BadWords, recent: Tensor) -> None:
    """In place on float32 logits [R, V]; ``recent`` int64 [places, K] are each row's last tokens."""
    tail = recent[words.places][:, recent.shape[1] - words.prefix.shape[1] :]
    matches = ((tail == words.prefix) | (words.prefix < 0)).all(dim=1)
    bans = logits.new_zeros(len(matches)).masked_fill_(matches, -math.inf)
    logits.index_put_((words.rows, words.last), bans, accumulate=True)
