"""How a request's tokens are chosen, with the names of TensorRT-LLM's ``SamplingParams``."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from mmcore.errors import SamplingParamsError, UnsupportedOptionError

NOT_BUILT_YET = {
    "best_of": None,
    "use_beam_search": False,
    "beam_width": None,
    "min_p": None,
    "repetition_penalty": None,
    "presence_penalty": None,
    "frequency_penalty": None,
    "logit_bias": None,
    "logprobs": None,
    "prompt_logprobs": None,
    "bad": None,
    "bad_token_ids": None,
    "guided_decoding": None,
    "logits_processor": None,
    "return_context_logits": False,
    "return_generation_logits": False,
}
"""Options that TensorRT-LLM knows and mmcore refuses by name, with the value that means "off"."""


class SamplingParams(BaseModel):
    """``temperature`` 0, or none of ``temperature``, ``top_k``, ``top_p``: greedy (or the family's defaults).

    ``stop`` strings end the text before them unless ``include_stop_str_in_output``. ``seed`` makes a
    request's tokens a function of the request alone; sequence i of ``n`` samples with ``seed + i``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_tokens: int | None = Field(default=None, ge=1)
    min_tokens: int = Field(default=0, ge=0)
    temperature: float | None = Field(default=None, ge=0.0, le=100.0, allow_inf_nan=False)
    top_k: int | None = Field(default=None, ge=0)
    """0 or None: no limit."""
    top_p: float | None = Field(default=None, gt=0.0, le=1.0)
    seed: int | None = Field(default=None, ge=0, lt=1 << 63)
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[Annotated[int, Field(ge=0)], ...] = ()
    end_id: int | None = Field(default=None, ge=0)
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    n: int = Field(default=1, ge=1, le=128)
    skip_special_tokens: bool = True

    def __init__(self, **options: Any) -> None:
        for name, off in NOT_BUILT_YET.items():
            if options.pop(name, off) != off:
                raise UnsupportedOptionError(f"SamplingParams.{name} is not built yet; leave it out")
        try:
            super().__init__(**options)
        except ValidationError as error:
            raise SamplingParamsError(_explain(error)) from None

    @field_validator("stop", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else (value or ())

    @field_validator("stop")
    @classmethod
    def _not_empty(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if "" in value:
            raise ValueError("an empty stop string would end every answer at once")
        return value

    @field_validator("min_tokens")
    @classmethod
    def _within_max_tokens(cls, value: int, info: ValidationInfo) -> int:
        most = info.data.get("max_tokens")
        if most is not None and value > most:
            raise ValueError(f"no answer is that long: max_tokens is {most}")
        return value


def _explain(error: ValidationError) -> str:
    return "; ".join(
        f"SamplingParams.{'.'.join(str(p) for p in d['loc'])}: {d['msg']} (got {d['input']!r})"
        for d in error.errors()
    )
