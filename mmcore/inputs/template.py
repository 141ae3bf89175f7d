"""The default prompt template: the checkpoint's Jinja, with user text and media kept structural.

Each user string goes through the template as a sentinel of private-use characters and is put back
afterwards, so nothing that a user types can become a media slot or a special token. Blanks around a string
stay outside its sentinel: templates that trim see them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from jinja2 import TemplateError

from mmcore.adapter import CheckpointFiles, Placeholder
from mmcore.errors import CheckpointError, PlaceholderMismatchError, PromptError
from mmcore.inputs.jinja import compile_template
from mmcore.request import MediaPart, MediaSegment, Message, Modality, Segment, TextPart, TextSegment

S = TypeVar("S", bound=Segment | int)
_OPEN, _CLOSE = "\U000f5c00", "\U000f5c01"
_SENTINEL = re.compile(f"{_OPEN}([tm])([0-9]+){_CLOSE}")
_CHANGING = re.compile("strftime_now|random|lipsum")
"""A template that says one of these may write something else the next time."""
_KNOWN_LENGTH = 4096
"""Characters of a conversation without its users' strings; longer ones are not remembered."""
_Parts = tuple[tuple[str, str], ...]
_Turns = tuple[tuple[str, _Parts], ...]
_TOKEN_NAMES = ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token")


@dataclass(frozen=True, slots=True)
class JinjaTemplate:
    """Implements `mmcore.adapter.PromptTemplate` by a Jinja source; serves most families.

    With ``parts`` a message's content is a list of ``{"type": ...}`` and the template itself writes each
    placeholder's text; without, it is one string in which a slot of modality m stands between
    ``slots[m]``, for example ``("", "\\n")``.
    """

    source: str
    placeholders: tuple[Placeholder, ...]
    turn_markers: tuple[str, ...] = ()
    """A raw prompt that holds one of these is written in the model's own format."""
    tokens: tuple[tuple[str, str], ...] = ()
    """Names that the template may use: ``bos_token`` and so on."""
    parts: bool = True
    slots: tuple[tuple[Modality, tuple[str, str]], ...] = ()
    prefix: str = ""
    """Trusted text that every prompt starts with (a BOS token), where it does not already."""

    @classmethod
    def from_files(
        cls, files: CheckpointFiles, placeholders: Sequence[Placeholder], **options: Any
    ) -> JinjaTemplate:
        """The checkpoint's own template. Raises `CheckpointError` where it has none."""
        source = options.pop("source", None) or files.chat_template
        if source is None:
            raise CheckpointError("the checkpoint has no chat template (chat_template.jinja)")
        compile_template(source)
        return cls(source, tuple(placeholders), tokens=template_tokens(files), **options)

    def render(self, messages: Sequence[Message]) -> tuple[Segment, ...]:
        texts: list[str] = []
        order: list[Modality] = []
        turns = tuple((m.role, self._content(m, texts, order)) for m in messages)
        size = sum(len(text) for _, content in turns for part in content for text in part)
        known = size <= _KNOWN_LENGTH and not _CHANGING.search(self.source)
        pieces = (_known_pieces if known else _pieces)(self, turns, tuple(order))
        return tuple(TextSegment(texts[one]) if isinstance(one, int) else one for one in pieces)

    def parse(self, prompt: str, media: Sequence[Modality]) -> tuple[Segment, ...]:
        own_format = any(True for _ in _find(prompt, self.placeholders)) or any(
            marker in prompt for marker in self.turn_markers
        )
        if media and not own_format:
            slots = tuple(MediaPart(modality) for modality in media)
            return self.render([Message("user", (*slots, TextPart(prompt)))])
        return raw_segments(prompt, media, self.placeholders, self.prefix)

    def run(self, turns: _Turns) -> str:
        """What the template writes, sentinels in it."""
        template = compile_template(self.source)
        messages = [{"role": role, "content": self._written(content)} for role, content in turns]
        names = dict(self.tokens)
        try:
            return template.render(messages=messages, add_generation_prompt=True, **names)
        except TemplateError as error:
            raise PromptError(f"the checkpoint's chat template refuses these messages: {error}") from None
        except Exception as error:
            raise PromptError(
                f"the checkpoint's chat template failed on these messages ({type(error).__name__})"
            ) from error

    def _content(self, message: Message, texts: list[str], order: list[Modality]) -> _Parts:
        """The message's parts, each text and slot as its sentinel."""
        parts: list[tuple[str, str]] = []
        for part in message.content:
            if isinstance(part, TextPart):
                parts.append(("text", _hide(part.text, texts)))
            else:
                before, after = dict(self.slots).get(part.modality, ("", ""))
                parts.append((part.modality, f"{before}{_OPEN}m{len(order)}{_CLOSE}{after}"))
                order.append(part.modality)
        return tuple(parts)

    def _written(self, content: _Parts) -> Any:
        """As the template expects it."""
        if not self.parts:
            return "".join(text for _, text in content)
        return [{"type": kind, "text": text} if kind == "text" else {"type": kind} for kind, text in content]


def _pieces(template: JinjaTemplate, turns: _Turns, order: tuple[Modality, ...]) -> tuple[Segment | int, ...]:
    """A rendered conversation: the template's text trusted, slots, and users' strings by their number."""
    rendered = with_prefix(template.run(turns), template.prefix)
    pieces: list[Segment | int] = []
    end = 0
    for match in _SENTINEL.finditer(rendered):
        pieces += _trusted(rendered[end : match.start()], template.placeholders)
        index = int(match[2])
        pieces.append(index if match[1] == "t" else MediaSegment(order[index], 0))
        end = match.end()
    pieces += _trusted(rendered[end:], template.placeholders)
    numbered = tuple(_number(pieces))
    _check_slots(numbered, order, template.placeholders)
    return numbered


_known_pieces = lru_cache(maxsize=128)(_pieces)
"""Many requests differ in their users' strings alone."""


@dataclass(frozen=True, slots=True)
class PlainTemplate:
    """For families without turns: the prompt as it is, media in front unless placeholders say where."""

    placeholders: tuple[Placeholder, ...] = ()
    prefix: str = ""
    """Trusted text before the first words (a BOS token), where they do not start with it."""
    suffix: str = ""
    """Trusted text at the end (an EOS token), where it is not there."""

    def render(self, messages: Sequence[Message]) -> tuple[Segment, ...]:
        parts = [part for message in messages for part in message.content]
        return self._framed(
            TextSegment(part.text) if isinstance(part, TextPart) else MediaSegment(part.modality, 0)
            for part in parts
        )

    def parse(self, prompt: str, media: Sequence[Modality]) -> tuple[Segment, ...]:
        if any(p.text in prompt for p in self.placeholders):
            return self._framed(raw_segments(prompt, media, self.placeholders))
        slots = (MediaSegment(modality, 0) for modality in media)
        return self._framed((*slots, *raw_segments(prompt, (), self.placeholders)))

    def _framed(self, segments: Iterable[Segment]) -> tuple[Segment, ...]:
        framed = list(_number(segments))
        first = next((i for i, s in enumerate(framed) if isinstance(s, TextSegment)), len(framed))
        if not _has_trusted(framed[first : first + 1], str.startswith, self.prefix):
            framed.insert(first, TextSegment(self.prefix, trusted=True))
        if not _has_trusted(framed[-1:], str.endswith, self.suffix):
            framed.append(TextSegment(self.suffix, trusted=True))
        return tuple(framed)


def _has_trusted(segments: Sequence[Segment], test: Callable[[str, str], bool], text: str) -> bool:
    trusted = [s for s in segments if isinstance(s, TextSegment) and s.trusted]
    return not text or any(test(segment.text, text) for segment in trusted)


def raw_segments(
    prompt: str, media: Sequence[Modality], placeholders: Sequence[Placeholder], prefix: str = ""
) -> tuple[Segment, ...]:
    """Trusted text, its placeholders made slots. Raises `PlaceholderMismatchError`."""
    segments = tuple(_number(_trusted(with_prefix(prompt, prefix), placeholders)))
    check_counts([s.modality for s in segments if isinstance(s, MediaSegment)], media, placeholders)
    return segments


def with_prefix(text: str, prefix: str) -> str:
    return text if text.startswith(prefix) else prefix + text


def template_tokens(files: CheckpointFiles) -> tuple[tuple[str, str], ...]:
    """Names of special tokens that a template may use, from ``tokenizer_config.json``."""
    stored = {**files.json("special_tokens_map.json"), **files.json("tokenizer_config.json")}
    named = {name: stored.get(name) for name in _TOKEN_NAMES}
    texts = {k: v["content"] if isinstance(v, Mapping) else v for k, v in named.items() if v is not None}
    return tuple(sorted((k, v) for k, v in texts.items() if isinstance(v, str)))


def check_counts(
    found: Sequence[Modality], media: Sequence[Modality], placeholders: Sequence[Placeholder]
) -> None:
    """As many placeholders as media, modality by modality, else `PlaceholderMismatchError`."""
    texts = {p.modality: p.text for p in placeholders}
    for modality in dict.fromkeys((*media, *found)):
        wanted, present = list(media).count(modality), list(found).count(modality)
        if wanted != present:
            raise PlaceholderMismatchError(
                f"the prompt holds {present} {modality} placeholder(s) for {wanted} {modality}(s): write "
                f"{texts.get(modality, 'one')!r} once for each, or give plain text without any"
            )


def _trusted(text: str, placeholders: Sequence[Placeholder]) -> Iterator[Segment]:
    """Unnumbered: text between the placeholders, which become slots."""
    end = 0
    for modality, span in _find(text, placeholders):
        if span[0] > end:
            yield TextSegment(text[end : span[0]], trusted=True)
        yield MediaSegment(modality, 0)
        end = span[1]
    if end < len(text):
        yield TextSegment(text[end:], trusted=True)


def _find(text: str, placeholders: Sequence[Placeholder]) -> Iterator[tuple[Modality, tuple[int, int]]]:
    """Placeholders in order, the longest where two start at one place."""
    by_text = {p.text: p.modality for p in placeholders}
    if by_text:
        for match in _any_of(tuple(by_text)).finditer(text):
            yield by_text[match.group()], match.span()


@lru_cache(maxsize=64)
def _any_of(texts: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True)))


def _hide(text: str, texts: list[str]) -> str:
    core = text.strip()
    if not core:
        return text
    start = text.index(core)
    texts.append(core)
    return f"{text[:start]}{_OPEN}t{len(texts) - 1}{_CLOSE}{text[start + len(core) :]}"


def _number(segments: Iterable[S]) -> Iterator[S | MediaSegment]:
    """Media segments get their indices; all else stays."""
    counts: dict[Modality, int] = {}
    for segment in segments:
        if isinstance(segment, MediaSegment):
            index = counts.get(segment.modality, 0)
            counts[segment.modality] = index + 1
            yield MediaSegment(segment.modality, index)
        else:
            yield segment


def _check_slots(
    segments: Sequence[Segment | int], order: Sequence[Modality], placeholders: Sequence[Placeholder]
) -> None:
    placed = [s.modality for s in segments if isinstance(s, MediaSegment)]
    if sorted(placed) != sorted(order):
        texts = " or ".join(repr(p.text) for p in placeholders)
        raise PromptError(
            f"the checkpoint's chat template made {len(placed)} media slot(s) of {len(order)} media: it does "
            f"not take media in this role or of this modality, or it does not write {texts} for them"
        )
