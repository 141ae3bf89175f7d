"""A slot's sampling options, as the sampler takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmcore.adapter import DecodingDefaults
from mmcore.sampling_params import SamplingParams, candidates_per_beam


@dataclass(frozen=True, slots=True)
class SlotSampling:
    """``temperature`` 0 is greedy; ``top_k`` 0, ``top_p`` 1 and ``min_p`` 0 are off."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    min_tokens: int


def resolve_sampling(params: SamplingParams, sequence: int) -> SlotSampling:
    """Greedy where beams search, and where none of temperature, top_k and top_p is named."""
    temperature = params.temperature
    if params.use_beam_search or (temperature is None and params.top_k is None and params.top_p is None):
        temperature = 0.0
    return SlotSampling(
        temperature=1.0 if temperature is None else temperature,
        top_k=params.top_k or 0,
        top_p=1.0 if params.top_p is None else params.top_p,
        min_p=params.min_p or 0.0,
        seed=(params.seed or 0) + sequence,
        min_tokens=params.min_tokens,
    )


def num_candidates(params: SamplingParams, stop_ids: Sequence[int], observed: bool) -> int | None:
    """Likeliest tokens to give back beside each chosen one; None: no scores either.

    Beams need enough of them to go on with when every stop id is among the best.
    """
    if params.use_beam_search:
        return candidates_per_beam(params.num_sequences, len(stop_ids))
    if params.logprobs is not None:
        return params.logprobs
    return 0 if observed or params.is_ranked else None


def stop_ids_of(params: SamplingParams, defaults: DecodingDefaults) -> frozenset[int]:
    """Token ids that end a sequence: the family's unless ``ignore_eos``, and the request's own."""
    own = frozenset(params.stop_token_ids)
    if params.ignore_eos:
        return own
    end = defaults.stop_ids if params.end_id is None else (params.end_id,)
    return own.union(end)
