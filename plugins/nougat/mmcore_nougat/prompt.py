"""What a request may say beside its page: nothing, a decoder prompt, or a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmcore.adapter import CheckpointFiles
from mmcore.errors import PromptError
from mmcore.request import Message, Modality, Segment, TextSegment, text_of

_BEFORE, _AFTER = ("<s_docvqa>", "<s_question>"), ("</s_question>", "<s_answer>")


@dataclass(frozen=True, slots=True)
class PagePrompt:
    """A raw prompt is the decoder's, as it stands, special tokens active; none: the checkpoint's start."""

    start: str
    """What a decoder prompt begins with."""
    asks: bool
    """The checkpoint answers questions: words that are no decoder prompt are one."""

    @classmethod
    def from_files(cls, files: CheckpointFiles, start: str) -> PagePrompt:
        return cls(start, all(files.tokenizer.token_id(t) is not None for t in (*_BEFORE, *_AFTER)))

    def render(self, messages: Sequence[Message]) -> tuple[Segment, ...]:
        return self._asked(" ".join(text_of(message.content) for message in messages).strip())

    def parse(self, prompt: str, media: Sequence[Modality]) -> tuple[Segment, ...]:
        if prompt.lstrip().startswith(self.start):
            return (TextSegment(prompt, trusted=True),)
        return self._asked(prompt.strip())

    def _asked(self, words: str) -> tuple[Segment, ...]:
        if not words:
            return ()
        if not self.asks:
            raise PromptError(
                f"this model reads pages and takes no instructions, got {words[:60]!r}: send the page alone "
                f"or with a decoder prompt, which begins with {self.start!r}"
            )
        before, after = (TextSegment("".join(tokens), trusted=True) for tokens in (_BEFORE, _AFTER))
        return before, TextSegment(words), after
