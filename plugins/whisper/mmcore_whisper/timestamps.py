"""The rules that timestamp tokens obey while a window is decoded.

Source: `ApplyTimestampRules` of openai/whisper, as `WhisperTimeStampLogitsProcessor` of transformers 5.24 has
it (the two agree): after a segment's end its successor begins with a timestamp of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmcore.adapter import LogitsEdit
from mmcore_whisper.tokens import WhisperTokens


@dataclass(frozen=True, slots=True)
class TimestampRule:
    """``initial`` is the latest timestamp, in steps, that may come first; None: any."""

    tokens: WhisperTokens
    initial: int | None = None
    needs_host_ids: bool = True

    def edit(self, generated: Sequence[int]) -> LogitsEdit:
        """A timestamp first; then pairs around each text, never going back; and a timestamp wherever all of
        them together are likelier than any one other token."""
        first, stop = self.tokens.first_timestamp, self.tokens.stop
        spans = [(self.tokens.no_timestamps, first)]
        if not generated:
            spans.append((0, self.tokens.no_timestamps))
            if self.initial is not None:
                spans.append((first + self.initial + 1, stop))
        elif generated[-1] >= first and self._begins_segment(generated):
            spans.append((first, stop))
        else:
            spans += self._after(generated)
        return LogitsEdit(banned_spans=tuple(spans), prefer=(first, stop))

    def _begins_segment(self, generated: Sequence[int]) -> bool:
        """The last timestamp stands first, or after the one that ended the segment before."""
        return len(generated) < 2 or generated[-2] >= self.tokens.first_timestamp

    def _after(self, generated: Sequence[int]) -> list[tuple[int, int]]:
        first = self.tokens.first_timestamp
        latest = next((token for token in reversed(generated) if token >= first), first - 1)
        if generated[-1] >= first:  # ends a segment: the next one's beginning, or the end of all
            return [(0, self.tokens.end), (first, latest)]
        return [(first, latest + 1)]


@dataclass(frozen=True, slots=True)
class LanguageRule:
    """Only a language."""

    tokens: WhisperTokens
    needs_host_ids: bool = False

    def edit(self, generated: Sequence[int]) -> LogitsEdit:
        return LogitsEdit(allowed=tuple(token_id for _, token_id in self.tokens.languages))


class AfterOneToken:
    """Stops there: a language is one token."""

    def observe(self, token_id: int, logit: float, logprob: float) -> bool:
        return True
