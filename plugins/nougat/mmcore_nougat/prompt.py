"""What a request may say beside its page: nothing, a decoder prompt, or a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmcore.adapter import CheckpointFiles
from mmcore.errors import PromptError
from mmcore.request import Message, Modality, Segment, TextSegment, text_of

_QUESTION = ("<s_docvqa>", "<s_question>", "</s_question>", "<s_answer>")


@dataclass(frozen=True, slots=True)
class PagePrompt:
    """A raw prompt is the decoder's, as it stands, special tokens active; none: the checkpoint's start."""

    starts: tuple[str, ...]
    """What a decoder prompt begins with."""
    asks: bool
    """The checkpoint answers questions: words that are no decoder prompt are one."""

    @classmethod
    def from_files(cls, files: CheckpointFiles, starts: tuple[str, ...]) -> PagePrompt:
        return cls(starts, all(files.tokenizer.token_id(token) is not None for token in _QUESTION))

    def render(self, messages: Sequence[Message]) -> tuple[Segment, ...]:
        words = " ".join(text_of(message.content) for message in messages).strip()
        return self._asked(words) if words else ()

    def parse(self, prompt: str, media: Sequence[Modality]) -> tuple[Segment, ...]:
        if not prompt.strip():
            return ()
        if prompt.lstrip().startswith(self.starts):
            return (TextSegment(prompt, trusted=True),)
        return self._asked(prompt)

    def _asked(self, words: str) -> tuple[Segment, ...]:
        if not self.asks:
            raise PromptError(
                f"this model reads pages and takes no instructions, got {words[:60]!r}: send the page alone "
                f"or with a decoder prompt, which begins with {' or '.join(map(repr, self.starts))}"
            )
        task, opened, closed, answer = _QUESTION
        return (
            TextSegment(task + opened, trusted=True),
            TextSegment(words),
            TextSegment(closed + answer, trusted=True),
        )
