"""How a request's tokens are chosen, with the names of TensorRT-LLM's ``SamplingParams``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from mmcore.errors import SamplingParamsError, UnsupportedOptionError

NOT_BUILT_YET = {
    "prompt_logprobs": None,
    "guided_decoding": None,
    "logits_processor": None,
    "return_context_logits": False,
    "return_generation_logits": False,
}
"""Options that TensorRT-LLM knows and mmcore refuses by name, with the value that means "off"."""

MAX_SEQUENCES = 128
"""Sequences of one request."""

TokenId = Annotated[int, Field(ge=0)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class SamplingParams(BaseModel):
    """``temperature`` 0, or none of ``temperature``, ``top_k``, ``top_p``: greedy (or the family's defaults).

    What is done to the logits, in this order: ``logit_bias`` is added; ``repetition_penalty`` divides
    positive logits of tokens in the prompt or the answer and multiplies negative ones (Keskar et al. 2019);
    ``frequency_penalty`` times a token's count in the answer alone, and ``presence_penalty`` once if it is
    there, are subtracted; ``bad`` words and the family's bans become impossible. Then come temperature,
    ``top_k``, ``top_p`` and ``min_p``, which drops tokens less likely than ``min_p`` times the likeliest.
    Where transformers has a processor, its result is equal. Logprobs are those before temperature.

    ``stop`` strings end the text before them unless ``include_stop_str_in_output``. ``seed`` makes a
    request's tokens a function of the request alone; sequence i of ``n`` samples with ``seed + i``.
    Of ``best_of`` sequences the ``n`` with the highest cumulative logprob are given, best first.

    ``use_beam_search`` keeps the ``beam_width`` likeliest sequences (default: ``best_of``, else ``n``) and
    gives the ``n`` best. A finished one scores its sum of logprobs / length ** ``length_penalty``; see
    `mmcore.core.beam_search` for ``early_stopping``. Defaults and results are those of transformers.

    What is None is as ``generation_config.json`` has it (`mmcore.sampling_defaults.with_defaults`), else off.
    A checkpoint that searches with beams by default is kept from it by ``use_beam_search=False``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_tokens: int | None = Field(default=None, ge=1)
    min_tokens: int = Field(default=0, ge=0)
    temperature: float | None = Field(default=None, ge=0.0, le=100.0, allow_inf_nan=False)
    top_k: int | None = Field(default=None, ge=0)
    """0 or None: no limit."""
    top_p: float | None = Field(default=None, gt=0.0, le=1.0)
    min_p: float | None = Field(default=None, ge=0.0, le=1.0)
    repetition_penalty: float | None = Field(default=None, gt=0.0, allow_inf_nan=False)
    presence_penalty: Finite | None = None
    frequency_penalty: Finite | None = None
    logit_bias: Mapping[TokenId, Finite] | None = None
    bad: tuple[str, ...] = ()
    """Texts that are not generated, as the tokenizer spells them: first, after other text, after a blank."""
    bad_token_ids: tuple[tuple[TokenId, ...], ...] = ()
    """Ids, or sequences of ids whose last one is impossible after the others."""
    seed: int | None = Field(default=None, ge=0, lt=1 << 63)
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[TokenId, ...] = ()
    end_id: int | None = Field(default=None, ge=0)
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    n: int = Field(default=1, ge=1, le=MAX_SEQUENCES)
    best_of: int | None = Field(default=None, ge=1, le=MAX_SEQUENCES)
    use_beam_search: bool | None = None
    beam_width: int | None = Field(default=None, ge=1, le=MAX_SEQUENCES)
    length_penalty: Finite | None = None
    early_stopping: bool | Literal["never"] | None = None
    logprobs: int | None = Field(default=None, ge=0, le=100)
    """So many of the likeliest tokens are told beside each chosen one, with their logprobs."""
    skip_special_tokens: bool = True

    @property
    def num_sequences(self) -> int:
        """Sequences that are computed, of which ``n`` are given."""
        if self.use_beam_search:
            return self.beam_width or self.best_of or self.n
        return self.best_of or self.n

    @property
    def is_ranked(self) -> bool:
        """Which sequences are given is known at the end only."""
        return bool(self.use_beam_search) or self.num_sequences > self.n

    def __init__(self, **options: Any) -> None:
        for name, off in NOT_BUILT_YET.items():
            if options.pop(name, off) != off:
                raise UnsupportedOptionError(f"SamplingParams.{name} is not built yet; leave it out")
        try:
            super().__init__(**options)
        except ValidationError as error:
            raise SamplingParamsError(_explain(error)) from None

    @field_validator("stop", "bad", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else (value or ())

    @field_validator("stop", "bad")
    @classmethod
    def _not_empty(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if "" in value:
            raise ValueError("an empty string is in every answer")
        return value

    @field_validator("bad_token_ids", mode="before")
    @classmethod
    def _ids_or_sequences(cls, value: Any) -> Any:
        return tuple((word,) if isinstance(word, int) else word for word in value or ())

    @field_validator("bad_token_ids")
    @classmethod
    def _no_empty_word(cls, value: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        if () in value:
            raise ValueError("an empty sequence is in every answer")
        return value

    @field_validator("min_tokens")
    @classmethod
    def _within_max_tokens(cls, value: int, info: ValidationInfo) -> int:
        most = info.data.get("max_tokens")
        if most is not None and value > most:
            raise ValueError(f"no answer is that long: max_tokens is {most}")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.n > self.num_sequences:
            raise ValueError(f"n is {self.n}: no more than best_of or beam_width can be given")
        if not self.use_beam_search:
            if self.beam_width is not None:
                raise ValueError("beam_width needs use_beam_search=True")
            return self
        if self.best_of is not None and self.beam_width not in (None, self.best_of):
            raise ValueError(f"best_of is {self.best_of} and beam_width {self.beam_width}; give one of them")
        if self.temperature or self.min_p:
            raise ValueError("use_beam_search takes the likeliest sequences; leave temperature and min_p out")
        if self.stop:
            raise UnsupportedOptionError("SamplingParams.stop is not built yet with use_beam_search")
        if self.logprobs:
            raise UnsupportedOptionError("SamplingParams.logprobs above 0 is not built yet with beam search")
        return self


def candidates_per_beam(width: int, num_stop_ids: int) -> int:
    """The likeliest tokens of a beam that are looked at: ``width`` are left when all that could end do."""
    return max(2, 1 + num_stop_ids) * width


def _explain(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(('SamplingParams', *map(str, d['loc'])))}: {d['msg'].removeprefix('Value error, ')}"
        f" (got {d['input']!r})"
        for d in error.errors()
    )
