"""What a Whisper request may say: one recording, and a decoder prompt or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmcore.errors import PlaceholderMismatchError, PromptError
from mmcore.request import MediaPart, Message, Modality, Segment, TextSegment, text_of

START = "<|startoftranscript|>"


@dataclass(frozen=True, slots=True)
class WhisperPrompt:
    """Whisper follows no instructions: language and task are options, or tokens of the decoder prompt."""

    def render(self, messages: Sequence[Message]) -> tuple[Segment, ...]:
        """Messages with one recording and no words: the default decoder prefix, so no segments."""
        words = " ".join(text_of(message.content) for message in messages).strip()
        if words:
            raise PromptError(
                f"Whisper takes no instructions, got {words[:60]!r}: send the recording alone; language and "
                'task are decoder_options={"language": "en", "task": "transcribe"} of a TextPrompt'
            )
        parts = [part for message in messages for part in message.content if isinstance(part, MediaPart)]
        _one_recording([part.modality for part in parts])
        return ()

    def parse(self, prompt: str, media: Sequence[Modality]) -> tuple[Segment, ...]:
        """The decoder prompt as it stands; empty, or only its start token: the default prefix."""
        _one_recording(media)
        if prompt.strip() in ("", START):
            return ()
        if prompt.count(START) != 1:
            raise PromptError(
                f"a Whisper prompt is a decoder prompt with {START} once, such as "
                f"'{START}<|en|><|transcribe|><|notimestamps|>', or empty; got {prompt[:60]!r}. "
                'Language and task may also be given as decoder_options={"language": "en"}'
            )
        return (TextSegment(prompt, trusted=True),)


def _one_recording(media: Sequence[Modality]) -> None:
    if list(media) != ["audio"]:
        given = ", ".join(media) or "none"
        raise PlaceholderMismatchError(f'Whisper takes exactly one medium, an "audio"; got {given}')
