"""Whisper's decoding: its decoder prefix, its rules, and the chain that takes a recording of any length.

Links of the chain: the language where none is named, then window after window, each starting where the last
timestamp of the one before ended.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mmcore.adapter import (
    CheckpointFiles,
    DecodingDefaults,
    FollowUp,
    Generation,
    LogitsRule,
    StopRule,
    Tokenizer,
)
from mmcore.errors import UnsupportedOptionError
from mmcore.inputs.decoding import decoding_defaults
from mmcore.request import ItemPlan, PreparedRequest, Result
from mmcore_whisper.hub_files import is_multilingual
from mmcore_whisper.languages import language_code
from mmcore_whisper.timestamps import AfterOneToken, LanguageRule, TimestampRule
from mmcore_whisper.tokens import WhisperTokens
from mmcore_whisper.windows import FRAMES_A_ROW, Segment, decoded_window

_TIMESTAMP = re.compile(r"<\|\d+\.\d\d\|>")
_OPTIONS = ("language", "task", "timestamps", "initial_prompt")


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPlan:
    """What an item's plan says of its window, in spectrogram frames; `of` reads it back."""

    start: int
    frames: int
    """Of sound in the window."""
    total: int
    """Of sound in the recording."""
    seconds: float

    @classmethod
    def of(cls, plan: ItemPlan) -> WindowPlan:
        start, frames, total = plan.geometry
        return cls(start=start, frames=frames, total=total, seconds=plan.times[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class WhisperDecoding:
    """``language`` and ``task`` are what a request gets that names none."""

    defaults: DecodingDefaults
    tokens: WhisperTokens
    tokenizer: Tokenizer = field(compare=False, repr=False)
    max_length: int
    """Positions of the decoder."""
    frame_rate: int = 100
    """Spectrogram frames a second."""
    max_initial_timestamp: int | None = None
    """In steps of 0.02 s."""
    language: str = "en"
    task: str = "transcribe"

    # -------------------------------------------------------------- before a link

    def prefix(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Start, language and task where the checkpoint is multilingual, then what says "no timestamps".

        ``language`` None detects it: the start alone. ``timestamps="segment"`` asks for them.
        ``initial_prompt`` is a text that goes before every window, as if it had just been spoken; of a long
        one the end counts.
        """
        unknown = sorted(options.keys() - set(_OPTIONS))
        if unknown:
            raise UnsupportedOptionError(
                f"Whisper has no decoder option {unknown[0]!r}; it takes {', '.join(_OPTIONS)}"
            )
        timestamps = options.get("timestamps")
        if timestamps not in (None, "segment"):
            raise UnsupportedOptionError(f'timestamps={timestamps!r} is not built; give "segment" or None')
        language = self._language(options.get("language", self.language))
        task = self._task(options.get("task", self.task))
        earlier = self._earlier(options.get("initial_prompt"))
        if language is None:
            return (self.tokens.start,)
        mode = () if timestamps else (self.tokens.no_timestamps,)
        return (*earlier, self.tokens.start, *language, *task, *mode)

    def _language(self, wanted: Any) -> tuple[int, ...] | None:
        """None: to be detected. What knows English alone has nothing to detect."""
        code = language_code(wanted) if isinstance(wanted, str) else wanted
        if not self.tokens.languages and code in ("en", None):
            return ()
        if code is None:
            return None
        return (_choose("language", code, self.tokens.languages or (("en", 0),)),)

    def _task(self, wanted: Any) -> tuple[int, ...]:
        if not self.tokens.tasks and wanted == "transcribe":
            return ()
        return (_choose("task", wanted, self.tokens.tasks or (("transcribe", 0),)),)

    def _earlier(self, text: Any) -> tuple[int, ...]:
        if text is None or text == "":
            return ()
        if not isinstance(text, str) or self.tokens.previous is None:
            raise UnsupportedOptionError(
                "initial_prompt is a text, and the checkpoint must have <|startofprev|>"
            )
        ids = self.tokenizer.encode(" " + text.strip(), special_tokens=False)
        return (self.tokens.previous, *ids[-(self.max_length // 2 - 1) :])

    def logits_rules(self, request: PreparedRequest) -> tuple[LogitsRule, ...]:
        if self._detects(request):
            return (LanguageRule(self.tokens),)
        if _has_timestamps(request):
            return (TimestampRule(self.tokens, self.max_initial_timestamp),)
        return ()

    def stop_rule(self, request: PreparedRequest) -> StopRule | None:
        return AfterOneToken() if self._detects(request) else None

    def _detects(self, request: PreparedRequest) -> bool:
        asked = ("language", None) in request.decoder_options
        return asked and request.token_ids == (self.tokens.start,) and bool(self.tokens.languages)

    # -------------------------------------------------------------- after a link

    def finish(self, generation: Generation) -> Result:
        """The text so far without timestamp tokens. Fields: language, task, duration and position in
        seconds (what is transcribed), and with timestamps the segments so far, (start, end, text) each."""
        request, before = generation.request, generation.previous or Result("")
        if self._detects(request):
            chosen = {token_id: code for code, token_id in self.tokens.languages}
            return Result("", (("language", chosen.get(next(iter(generation.ids), -1))),))
        window = WindowPlan.of(request.items[0].plan)
        if not _has_timestamps(request):
            text = before.text + _TIMESTAMP.sub("", generation.text)
            return Result(text, tuple(self._fields(request, window, window.frames).items()))
        decoded = decoded_window(
            [token for token in generation.ids if token != self.tokens.end],
            window.frames,
            self.tokens.first_timestamp,
        )
        texts = [self._text(segment) for segment in decoded.segments]
        spoken = tuple(
            (self._seconds(window, segment.start), self._seconds(window, segment.end), text.strip())
            for segment, text in zip(decoded.segments, texts, strict=True)
            if text.strip()
        )
        fields = self._fields(request, window, decoded.advance)
        fields["segments"] = (*dict(before.fields).get("segments", ()), *spoken)
        return Result(before.text + "".join(texts), tuple(fields.items()))

    def _fields(self, request: PreparedRequest, window: WindowPlan, advance: int) -> dict[str, Any]:
        return {
            "language": _named(request.token_ids, self.tokens.languages, "en"),
            "task": _named(request.token_ids, self.tokens.tasks, "transcribe"),
            "duration": window.seconds,
            "position": (window.start + advance) / self.frame_rate,
        }

    def _text(self, segment: Segment) -> str:
        words = [token for token in segment.ids if token < self.tokens.first_timestamp]
        return self.tokenizer.decode(words, skip_special_tokens=True)

    def _seconds(self, window: WindowPlan, row: int) -> float:
        return (window.start + row * FRAMES_A_ROW) / self.frame_rate

    def follow_up(self, request: PreparedRequest, result: Result) -> FollowUp | None:
        """With the language that was heard, or at the next window, until no frame of sound is left."""
        fields = dict(result.fields)
        if self._detects(request):
            known = {**dict(request.decoder_options), "language": fields["language"]}
            return FollowUp(token_ids=self.prefix(known))
        start = round(fields["position"] * self.frame_rate)
        if start < WindowPlan.of(request.items[0].plan).total:
            return FollowUp(options={"start": start})
        return None


def _has_timestamps(request: PreparedRequest) -> bool:
    return ("timestamps", "segment") in request.decoder_options


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


def read_decoding(
    config: Mapping[str, Any], files: CheckpointFiles, frame_rate: int = 100
) -> WhisperDecoding:
    """Prefix and suppressed ids as ``generation_config.json`` states them, else ``config.json``."""
    stated = {**config, **files.json("generation_config.json")}
    tokens = WhisperTokens.read(files, config["vocab_size"], _is_multilingual(stated))
    names = {token_id: name for name, token_id in (*tokens.languages, *tokens.tasks)}
    forced = {position: names.get(token_id) for position, token_id in stated.get("forced_decoder_ids") or ()}
    return WhisperDecoding(
        defaults=replace(
            decoding_defaults(stated), stop_ids=(tokens.end,), max_tokens=config["max_target_positions"]
        ),
        tokens=tokens,
        tokenizer=files.tokenizer,
        max_length=config["max_target_positions"],
        frame_rate=frame_rate,
        max_initial_timestamp=stated.get("max_initial_timestamp_index"),
        language=language_code(stated.get("language") or forced.get(1) or "en"),
        task=stated.get("task") or forced.get(2) or "transcribe",
    )


def _is_multilingual(stated: Mapping[str, Any]) -> bool:
    """What the checkpoint says, else by the size of its vocabulary."""
    by_size = "lang_to_id" in stated or is_multilingual(stated["vocab_size"])
    return bool(stated.get("is_multilingual", by_size))
