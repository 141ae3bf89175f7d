"""Whisper's special tokens, by what they are for."""

from __future__ import annotations

from dataclasses import dataclass

from mmcore.adapter import CheckpointFiles
from mmcore.errors import CheckpointError
from mmcore_whisper.languages import CODES
from mmcore_whisper.prompt import START

TASKS = ("transcribe", "translate")


@dataclass(frozen=True, slots=True)
class WhisperTokens:
    """Special token ids. English-only checkpoints have no languages and no tasks.

    The timestamps follow ``no_timestamps`` in steps of one encoder row, up to ``stop``, the vocabulary's end;
    the tokenizer files of English-only checkpoints do not name them.
    """

    end: int
    start: int
    no_timestamps: int
    stop: int
    previous: int | None = None
    """Goes before an earlier text."""
    languages: tuple[tuple[str, int], ...] = ()
    tasks: tuple[tuple[str, int], ...] = ()

    @property
    def first_timestamp(self) -> int:
        """``<|0.00|>``."""
        return self.no_timestamps + 1

    @classmethod
    def read(cls, files: CheckpointFiles, vocab_size: int, multilingual: bool) -> WhisperTokens:
        """Raises `CheckpointError` where the tokenizer is not Whisper's."""
        token_id = files.tokenizer.token_id
        named = {text: token_id(text) for text in ("<|endoftext|>", START, "<|notimestamps|>")}
        missing = [text for text, found in named.items() if found is None]
        if missing:
            raise CheckpointError(
                f"tokenizer.json has no {', '.join(missing)}: it is not a Whisper tokenizer"
            )
        end, start, no_timestamps = (found for found in named.values() if found is not None)
        languages = tuple((code, found) for code in CODES if (found := token_id(f"<|{code}|>")) is not None)
        tasks = tuple((task, found) for task in TASKS if (found := token_id(f"<|{task}|>")) is not None)
        return cls(
            end=end,
            start=start,
            no_timestamps=no_timestamps,
            stop=vocab_size,
            previous=token_id("<|startofprev|>"),
            languages=languages if multilingual else (),
            tasks=tasks if multilingual else (),
        )
