"""Chooses the next tokens. A draw is a function of (seed, position, token id) alone, so that batching,
row order and preemption change nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mmcore.model.logits_edit import RowEdit, edit_logits

SMALLEST_TEMPERATURE = 1e-5
"""Below it a draw is the largest logit anyway, and the division would overflow."""
PREFIX = 512
"""Likeliest tokens looked at first where only top-p limits them."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class SamplingBatch:
    """How each of R rows is sampled; build it with `of`. The flags are what the host knows of the columns."""

    temperature: Tensor  # float32 [R], 0: greedy
    top_k: Tensor  # int64 [R], 0: no limit
    top_p: Tensor  # float32 [R], 1: no limit
    min_p: Tensor  # float32 [R], 0: no limit
    seed: Tensor  # int64 [R], the sequence's own (request seed + sequence)
    position: Tensor  # int64 [R], tokens generated before this one
    all_greedy: bool
    filtered: bool
    """Some row has a top_k or a top_p."""
    candidates: int | None
    """The largest top_k, where each row that is not greedy has one."""
    edits: tuple[RowEdit, ...] = ()

    @classmethod
    def of(
        cls,
        *,
        temperature: Sequence[float],
        top_k: Sequence[int],
        top_p: Sequence[float],
        min_p: Sequence[float],
        seed: Sequence[int],
        position: Sequence[int],
        device: torch.device,
        edits: Sequence[RowEdit] = (),
    ) -> SamplingBatch:
        """From host columns of one length R."""
        limits = [k for k, t in zip(top_k, temperature, strict=True) if t > 0]
        return cls(
            temperature=torch.tensor(temperature, dtype=torch.float32).to(device, non_blocking=True),
            top_k=torch.tensor(top_k, dtype=torch.int64).to(device, non_blocking=True),
            top_p=torch.tensor(top_p, dtype=torch.float32).to(device, non_blocking=True),
            min_p=torch.tensor(min_p, dtype=torch.float32).to(device, non_blocking=True),
            seed=torch.tensor([_signed(value) for value in seed], dtype=torch.int64).to(
                device, non_blocking=True
            ),
            position=torch.tensor(position, dtype=torch.int64).to(device, non_blocking=True),
            all_greedy=not any(temperature),
            filtered=any(top_k) or any(p < 1.0 for p in top_p),
            candidates=max(limits, default=1) if all(limits) else None,
            edits=tuple(edits),
        )


def sample(logits: Tensor, batch: SamplingBatch) -> Tensor:
    """Token ids int64 [R] from float32 logits [R, V], which are changed in place by the batch's edits.

    Temperature 0 takes the largest logit exactly. Otherwise top-k, then top-p over what is left
    (Holtzman et al. 2020), then min-p (Nguyen et al. 2024), then a Gumbel-max draw. Of equal logits the
    lower id ranks first.
    """
    edit_logits(logits, batch.edits)
    greedy = logits.argmax(dim=-1)
    if batch.all_greedy:
        return greedy
    scaled = logits / batch.temperature.clamp(min=SMALLEST_TEMPERATURE).unsqueeze(1)
    drawn = _draw_filtered(scaled, batch) if batch.filtered else _draw(scaled, batch)
    return torch.where(batch.temperature > 0, drawn, greedy)


def token_scores(logits: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Logit and log-probability of the chosen ids [R] under logits [R, V]; float32 [R] each."""
    chosen = logits.gather(1, ids.unsqueeze(1)).squeeze(1)
    return chosen, chosen - logits.logsumexp(dim=-1)


def top_tokens(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The likeliest tokens of logits [R, V], best first: values float32 and ids int64, [R, count] each."""
    values, ids = logits.topk(min(count, logits.shape[1]), dim=-1)
    return values, ids


def _draw(scaled: Tensor, batch: SamplingBatch) -> Tensor:
    ids = torch.arange(scaled.shape[1], device=scaled.device).unsqueeze(0)
    scaled = _without_unlikely(scaled, scaled.amax(dim=-1, keepdim=True), batch)
    return (scaled + _gumbel(batch.seed, batch.position, ids)).argmax(dim=-1)


def _draw_filtered(scaled: Tensor, batch: SamplingBatch) -> Tensor:
    ordered, ids = _likeliest(scaled, batch)  # [R, K]
    rank = torch.arange(ordered.shape[1], device=scaled.device)
    limit = torch.where(batch.top_k > 0, batch.top_k, scaled.shape[1]).unsqueeze(1)
    ordered = ordered.masked_fill(rank >= limit, -math.inf)
    best = ordered[:, :1].clone()
    weight = (ordered - best).double().exp()  # summed in double: a row's sums do not depend on K
    before = weight.cumsum(dim=-1) - weight
    total = torch.where(batch.top_k > 0, weight.sum(dim=-1), _total(scaled, best)).unsqueeze(1)
    full = (batch.top_p >= 1.0).unsqueeze(1)
    dropped = (before >= batch.top_p.unsqueeze(1) * total) & (rank > 0) & ~full
    kept = _without_unlikely(ordered.masked_fill_(dropped, -math.inf), best, batch)
    noisy = kept + _gumbel(batch.seed, batch.position, ids)
    return ids.gather(1, noisy.argmax(dim=-1, keepdim=True)).squeeze(1)


def _without_unlikely(scaled: Tensor, best: Tensor, batch: SamplingBatch) -> Tensor:
    """Min-p: a token stays if it is at least ``min_p`` times as likely as the likeliest."""
    return scaled.masked_fill(scaled < best + batch.min_p.log().unsqueeze(1), -math.inf)


def _likeliest(scaled: Tensor, batch: SamplingBatch) -> tuple[Tensor, Tensor]:
    """Values and ids [R, K], best first, of at least all tokens that the filters keep.

    Sorting a whole vocabulary is slow on a CPU: a few hundred tokens nearly always hold what top-p keeps, and
    where they do not, that shows. A GPU sorts, since it would have to wait for the answer.
    """
    keys, width = _order_keys(scaled), scaled.shape[1]
    if batch.candidates is not None:
        best = keys.topk(min(batch.candidates, width), dim=-1).values
    elif scaled.is_cuda or width <= PREFIX:
        best = keys.sort(dim=-1, descending=True).values
    else:
        best = keys.topk(min(max(PREFIX, int(batch.top_k.max())), width), dim=-1).values
        if not _covers(scaled, best, batch):
            best = keys.sort(dim=-1, descending=True).values
    return _picked(scaled, best)


def _picked(scaled: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    ids = keys.bitwise_and(_low_bits(32)).neg_().add_(_low_bits(32))
    return scaled.gather(1, ids), ids


def _covers(scaled: Tensor, keys: Tensor, batch: SamplingBatch) -> bool:
    """Whether rows without a top_k keep nothing beyond these keys [R, K]."""
    values, _ = _picked(scaled, keys)
    best = values[:, :1]
    mass = (values - best).double().exp().sum(dim=-1)
    enough = mass >= batch.top_p * _total(scaled, best) * (1 + 1e-9)
    return bool((enough | (batch.top_k > 0) | (batch.temperature == 0)).all())


def _total(scaled: Tensor, best: Tensor) -> Tensor:
    """Sum of the exponentials, float64 [R]."""
    return (scaled - best).exp().sum(dim=-1, dtype=torch.float64)


def _order_keys(values: Tensor) -> Tensor:
    """int64 [R, V]: larger for a larger value, of equal values for the lower index; low 32 bits say which."""
    bits = (values + 0.0).view(torch.int32)  # -0.0 is 0.0
    bits = bits ^ (bits >> 31).bitwise_and_(0x7FFFFFFF)
    index = torch.arange(values.shape[1], device=values.device)
    return bits.long().bitwise_left_shift_(32).bitwise_or_(_low_bits(32) - index)


def _gumbel(seed: Tensor, position: Tensor, ids: Tensor) -> Tensor:
    """Gumbel noise, float32 [R, V], for seeds and positions [R] and token ids [1 or R, V]."""
    stream = split_mix_(split_mix_(seed.clone()) + position).unsqueeze(1)  # [R, 1]
    bits = split_mix_(stream + ids).bitwise_right_shift_(11).bitwise_and_(_low_bits(53))
    uniform = bits.float().add_(0.5).mul_(2.0**-53).clamp_(max=1.0 - 2.0**-24)  # in (0, 1), fine near 0
    return uniform.neg_().log1p_().neg_().log_().neg_()


def split_mix_(x: Tensor) -> Tensor:
    """SplitMix64 (Steele, Lea and Flood 2014) in place on int64, whose products wrap around."""
    x.mul_(_signed(0x9E3779B97F4A7C15)).add_(_signed(0x9E3779B97F4A7C15))
    x.bitwise_xor_(_shifted(x, 30)).mul_(_signed(0xBF58476D1CE4E5B9))
    x.bitwise_xor_(_shifted(x, 27)).mul_(_signed(0x94D049BB133111EB))
    return x.bitwise_xor_(_shifted(x, 31))


def _shifted(x: Tensor, count: int) -> Tensor:
    """Logical right shift: int64 shifts keep the sign."""
    return (x >> count).bitwise_and_(_low_bits(64 - count))


def _low_bits(count: int) -> int:
    """Mask of the lowest bits."""
    return (1 << count) - 1


def _signed(value: int) -> int:
    """The int64 that is ``value`` modulo 2 ** 64."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
