"""What the methods of `LLM` may be called with: one prompt or many, parameters for all or one a prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from mmcore.errors import InputError, SamplingParamsError
from mmcore.inputs.prompt import Prompt
from mmcore.request import PreparedRequest
from mmcore.sampling_params import SamplingParams

PromptLike = Prompt | list[int] | PreparedRequest
"""Text, `TextPrompt`, `TokensPrompt`, token ids, or what `LLM.preprocess` gave."""
Params = SamplingParams | Sequence[SamplingParams] | None
"""For all prompts, or one a prompt."""
P = TypeVar("P", bound=PromptLike)
"""So that a type checker takes a ``list[TextPrompt]`` for a list of prompts."""


def is_one_prompt(inputs: object) -> bool:
    if isinstance(inputs, (str, Mapping, PreparedRequest)):
        return True
    if not isinstance(inputs, Sequence):
        raise InputError(f"a prompt is text, a mapping, or a list; got {type(inputs).__name__}")
    return len(inputs) > 0 and all(isinstance(value, int) for value in inputs)


def as_prompt(inputs: Prompt | list[int]) -> Prompt:
    return {"prompt_token_ids": inputs} if isinstance(inputs, list) else inputs


def checked_params(params: object) -> SamplingParams:
    """None: the family's defaults."""
    if params is None:
        return SamplingParams()
    if not isinstance(params, SamplingParams):
        raise SamplingParamsError(
            f"sampling_params is a SamplingParams, or a list with one for each prompt, not a "
            f"{type(params).__name__}"
        )
    return params


def one_params(params: Params) -> SamplingParams | None:
    if not isinstance(params, Sequence) or isinstance(params, str):
        return checked_params(params)
    if len(params) != 1:
        raise InputError(f"one prompt, but {len(params)} sampling_params")
    return params[0]


def each_params(params: Params, count: int) -> Sequence[SamplingParams | None]:
    if not isinstance(params, Sequence) or isinstance(params, str):
        return [checked_params(params)] * count
    if len(params) != count:
        raise InputError(f"{count} prompts, but {len(params)} sampling_params")
    return [checked_params(given) for given in params]
