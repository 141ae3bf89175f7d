"""The default decoding part: what ``generation_config.json`` says, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mmcore.decoding import DecodingDefaults, FollowUp, Generation, LogitsEdit, LogitsRule, StopRule
from mmcore.errors import CheckpointError, UnsupportedOptionError
from mmcore.request import PreparedRequest, Result
from mmcore.sampling_params import MAX_SEQUENCES


@dataclass(frozen=True, slots=True)
class SuppressRule:
    """Bans ``always``, and ``first`` as the first generated token. Counts tokens, so overlap stays on."""

    always: tuple[int, ...] = ()
    first: tuple[int, ...] = ()
    needs_host_ids: bool = False

    def edit(self, generated: Sequence[int]) -> LogitsEdit:
        return LogitsEdit(banned=self.always if generated else self.always + self.first)


@dataclass(frozen=True, slots=True)
class PlainDecoding:
    """Implements `mmcore.adapter.Decoding` for families whose answer is plain text."""

    defaults: DecodingDefaults = field(default_factory=DecodingDefaults)
    decoder_prefix: tuple[int, ...] = ()

    def prefix(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        for name in options:
            raise UnsupportedOptionError(f"this model has no decoder option {name!r}")
        return self.decoder_prefix

    def logits_rules(self, request: PreparedRequest) -> tuple[LogitsRule, ...]:
        rule = SuppressRule(self.defaults.suppress_ids, self.defaults.first_suppress_ids)
        return (rule,) if rule.always or rule.first else ()

    def stop_rule(self, request: PreparedRequest) -> StopRule | None:
        return None

    def finish(self, generation: Generation) -> Result:
        return Result(generation.text)

    def follow_up(self, request: PreparedRequest, result: Result) -> FollowUp | None:
        return None


def decoding_defaults(
    generation_config: Mapping[str, Any], config: Mapping[str, Any] | None = None
) -> DecodingDefaults:
    """From ``generation_config.json``; stop ids from ``config.json`` where it names none.

    Sampling values count only with ``do_sample``, as in transformers.
    """
    stops = generation_config.get("eos_token_id", (config or {}).get("eos_token_id"))
    sampled: Mapping[str, Any] = generation_config if generation_config.get("do_sample") else {}
    return DecodingDefaults(
        stop_ids=_ids(stops),
        suppress_ids=_ids(generation_config.get("suppress_tokens")),
        first_suppress_ids=_ids(generation_config.get("begin_suppress_tokens")),
        max_tokens=generation_config.get("max_new_tokens"),
        temperature=sampled.get("temperature", 1.0 if sampled else None),
        top_k=sampled.get("top_k"),
        top_p=sampled.get("top_p"),
        min_p=sampled.get("min_p"),
        repetition_penalty=generation_config.get("repetition_penalty"),
        num_beams=_num_beams(generation_config.get("num_beams")),
        length_penalty=generation_config.get("length_penalty"),
        early_stopping=generation_config.get("early_stopping"),
    )


def _num_beams(value: Any) -> int:
    if value is None:
        return 1
    if not isinstance(value, int) or not 1 <= value <= MAX_SEQUENCES:
        raise CheckpointError(
            f"generation_config.json: num_beams is {value!r}, not from 1 to {MAX_SEQUENCES}"
        )
    return value


def _ids(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    return (int(value),) if isinstance(value, int) else tuple(int(i) for i in value)
