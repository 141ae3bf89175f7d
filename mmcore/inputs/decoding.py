"""The default decoding part: what ``generation_config.json`` says, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mmcore.decoding import DecodingDefaults, FollowUp, Generation, LogitsEdit, LogitsRule, StopRule
from mmcore.errors import UnsupportedOptionError
from mmcore.request import PreparedRequest, Result


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
    )


def _ids(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    return (int(value),) if isinstance(value, int) else tuple(int(i) for i in value)
