"""The checkpoint's sampling options, for requests that have none of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mmcore.adapter import Adapter, DecodingDefaults
from mmcore.errors import UnsupportedOptionError, plugin_code
from mmcore.request import PreparedRequest
from mmcore.sampling_params import SamplingParams


def with_checkpoint_defaults(prepared: PreparedRequest, adapter: Adapter) -> PreparedRequest:
    """See `with_defaults`. A family's stop rule watches one sequence grow, and beams change places: raises
    `UnsupportedOptionError` where a request asks for both."""
    with plugin_code(adapter.name, "making its stop rule"):
        is_observed = adapter.decoding.stop_rule(prepared) is not None
    if is_observed and prepared.sampling.use_beam_search:
        raise UnsupportedOptionError(
            f"request {prepared.request_id!r}: use_beam_search is not built for answers that {adapter.name}"
            " ends by a rule of its own, as where it is to detect the language; leave it out, or name the"
            " language"
        )
    sampling = with_defaults(prepared.sampling, adapter.decoding.defaults, may_search=not is_observed)
    return replace(prepared, sampling=sampling)


def with_defaults(
    params: SamplingParams, defaults: DecodingDefaults, *, may_search: bool = True
) -> SamplingParams:
    """A request's own options, and the checkpoint's where it has none.

    The checkpoint's ``num_beams`` silently steps aside where it cannot go with what is asked for: any of
    ``temperature`` (0 is greedy), ``top_k``, ``top_p``, ``min_p``, ``best_of``, ``stop``, ``logprobs`` above
    0, or more sequences than beams; where the checkpoint samples (``do_sample``); where the answer is
    streamed, which `mmcore.LLM` says by ``use_beam_search=False``; and where ``may_search`` is False, because
    the family's own stop rule ends the sequences.
    """
    update: dict[str, Any] = {}
    if params.use_beam_search is None and may_search and _searches_by_default(params, defaults):
        update |= {"use_beam_search": True, "beam_width": defaults.num_beams}
    if params.use_beam_search or update:
        names: tuple[str, ...] = ("repetition_penalty", "length_penalty", "early_stopping")
    elif (params.temperature, params.top_k, params.top_p) == (None, None, None):
        names = ("repetition_penalty", "temperature", "top_k", "top_p", "min_p")
    else:
        names = ("repetition_penalty",)
    update |= {name: getattr(defaults, name) for name in names if getattr(params, name) is None}
    update = {name: value for name, value in update.items() if value is not None}
    return params.model_copy(update=update) if update else params


def _searches_by_default(params: SamplingParams, defaults: DecodingDefaults) -> bool:
    own = (params.temperature, params.top_k, params.top_p, params.min_p, params.best_of)
    samples = any(value is not None for value in (*own, defaults.temperature))
    is_refused = bool(params.stop or params.logprobs)
    return not samples and not is_refused and max(params.n, 2) <= defaults.num_beams
