"""Whisper's decoder prefix and what becomes of its answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmcore.adapter import CheckpointFiles, DecodingDefaults, FollowUp, Generation, LogitsRule, StopRule
from mmcore.errors import CheckpointError, UnsupportedOptionError
from mmcore.request import PreparedRequest, Result
from mmcore_whisper.hub_files import is_multilingual
from mmcore_whisper.languages import CODES, language_code
from mmcore_whisper.prompt import START

_TIMESTAMP = re.compile(r"<\|\d+\.\d\d\|>")
_TASKS = ("transcribe", "translate")


@dataclass(frozen=True, slots=True)
class WhisperTokens:
    """Special token ids. English-only checkpoints have no languages and no tasks."""

    end: int
    start: int
    no_timestamps: int
    languages: tuple[tuple[str, int], ...] = ()
    tasks: tuple[tuple[str, int], ...] = ()

    @classmethod
    def read(cls, files: CheckpointFiles, multilingual: bool) -> WhisperTokens:
        token_id = files.tokenizer.token_id
        named = {text: token_id(text) for text in ("<|endoftext|>", START, "<|notimestamps|>")}
        missing = [text for text, found in named.items() if found is None]
        if missing:
            raise CheckpointError(
                f"tokenizer.json has no {', '.join(missing)}: it is not a Whisper tokenizer"
            )
        end, start, no_timestamps = (found for found in named.values() if found is not None)
        if not multilingual:
            return cls(end, start, no_timestamps)
        languages = tuple((code, found) for code in CODES if (found := token_id(f"<|{code}|>")) is not None)
        tasks = tuple((task, found) for task in _TASKS if (found := token_id(f"<|{task}|>")) is not None)
        return cls(end, start, no_timestamps, languages, tasks)


@dataclass(frozen=True, slots=True)
class WhisperDecoding:
    """``language`` and ``task`` are what a request gets that names none."""

    defaults: DecodingDefaults
    tokens: WhisperTokens
    language: str = "en"
    task: str = "transcribe"

    def prefix(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Start, language and task where the checkpoint is multilingual, no timestamps."""
        unknown = sorted(options.keys() - {"language", "task"})
        if unknown:
            raise UnsupportedOptionError(
                f"Whisper has no decoder option {unknown[0]!r}; it takes language and task"
            )
        language = self._language(options.get("language", self.language))
        task = self._task(options.get("task", self.task))
        return (self.tokens.start, *language, *task, self.tokens.no_timestamps)

    def _language(self, wanted: Any) -> tuple[int, ...]:
        if wanted is None:
            raise UnsupportedOptionError('language=None, detection, is not built yet; name it, as in "en"')
        code = language_code(wanted) if isinstance(wanted, str) else wanted
        if not self.tokens.languages and code == "en":
            return ()
        return (_choose("language", code, self.tokens.languages or (("en", 0),)),)

    def _task(self, wanted: Any) -> tuple[int, ...]:
        if not self.tokens.tasks and wanted == "transcribe":
            return ()
        return (_choose("task", wanted, self.tokens.tasks or (("transcribe", 0),)),)

    def logits_rules(self, request: PreparedRequest) -> tuple[LogitsRule, ...]:
        return ()

    def stop_rule(self, request: PreparedRequest) -> StopRule | None:
        return None

    def finish(self, generation: Generation) -> Result:
        """The text without timestamp tokens, and the language and task that its decoder prompt named."""
        prompt = generation.request.token_ids
        fields = {
            "language": _named(prompt, self.tokens.languages, "en"),
            "task": _named(prompt, self.tokens.tasks, "transcribe"),
        }
        return Result(_TIMESTAMP.sub("", generation.text), tuple(fields.items()))

    def follow_up(self, request: PreparedRequest, result: Result) -> FollowUp | None:
        return None


def _choose(option: str, wanted: Any, choices: tuple[tuple[str, int], ...]) -> int:
    found = dict(choices).get(wanted) if isinstance(wanted, str) else None
    if found is None:
        known = ", ".join(name for name, _ in choices)
        raise UnsupportedOptionError(f"{option}={wanted!r} is not one of this checkpoint's: {known}")
    return found


def _named(prompt: tuple[int, ...], choices: tuple[tuple[str, int], ...], otherwise: str) -> str | None:
    """The choice whose token the prompt holds; ``otherwise`` where the checkpoint has no choice."""
    if not choices:
        return otherwise
    return next((name for name, token_id in choices if token_id in prompt), None)


# ------------------------------------------------------------------ from the checkpoint


def read_decoding(config: Mapping[str, Any], files: CheckpointFiles) -> WhisperDecoding:
    """Prefix and suppressed ids as ``generation_config.json`` states them, else ``config.json``."""
    stated = {**config, **files.json("generation_config.json")}
    tokens = WhisperTokens.read(files, _is_multilingual(stated))
    names = {token_id: name for name, token_id in (*tokens.languages, *tokens.tasks)}
    forced = {position: names.get(token_id) for position, token_id in stated.get("forced_decoder_ids") or ()}
    return WhisperDecoding(
        defaults=DecodingDefaults(
            stop_ids=(tokens.end,),
            suppress_ids=tuple(stated.get("suppress_tokens") or ()),
            first_suppress_ids=tuple(stated.get("begin_suppress_tokens") or ()),
            max_tokens=config["max_target_positions"],
        ),
        tokens=tokens,
        language=language_code(stated.get("language") or forced.get(1) or "en"),
        task=stated.get("task") or forced.get(2) or "transcribe",
    )


def _is_multilingual(stated: Mapping[str, Any]) -> bool:
    """What the checkpoint says, else by the size of its vocabulary."""
    by_size = "lang_to_id" in stated or is_multilingual(stated["vocab_size"])
    return bool(stated.get("is_multilingual", by_size))
