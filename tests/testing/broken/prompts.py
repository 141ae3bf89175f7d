"""Templates that trust, move, double and lose what they are given; media looked through badly."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from testing.broken.record import Broken, worse_part

from mmcore.adapter import Adapter, MediaOps
from mmcore.errors import MMCoreError
from mmcore.inputs.template import JinjaTemplate
from mmcore.request import (
    DecodedMedia,
    MediaInfo,
    MediaSegment,
    Message,
    Modality,
    Segment,
    SourceSpec,
    TextSegment,
)

Read = Callable[[SourceSpec], DecodedMedia]


def no_video_placeholder(adapter: Adapter) -> Adapter:
    return replace(adapter, placeholders=tuple(p for p in adapter.placeholders if p.modality != "video"))


def misspelt_placeholder(adapter: Adapter) -> Adapter:
    named = [replace(p, modality=p.modality.replace("video", "videos")) for p in adapter.placeholders]
    return replace(adapter, placeholders=tuple(named))


class Doubled(JinjaTemplate):
    """Writes a picture's placeholder, and so does the family's code."""

    def render(self, messages: Sequence[Message]) -> tuple[Segment, ...]:
        segments = super().render(messages)
        return (*segments, *(s for s in segments if isinstance(s, MediaSegment)))


class Lost(JinjaTemplate):
    """Of several pictures only the first has a place."""

    def render(self, messages: Sequence[Message]) -> tuple[Segment, ...]:
        segments = super().render(messages)
        return tuple(s for s in segments if not (isinstance(s, MediaSegment) and s.index > 0))


class Backwards(JinjaTemplate):
    """The newest picture first."""

    def render(self, messages: Sequence[Message]) -> tuple[Segment, ...]:
        return _renumbered(super().render(messages), lambda index, count: count - 1 - index)


class Rotated(JinjaTemplate):
    """The last picture is taken for the first: an index that begins at -1."""

    def render(self, messages: Sequence[Message]) -> tuple[Segment, ...]:
        return _renumbered(super().render(messages), lambda index, count: (index - 1) % count)


def _renumbered(segments: Sequence[Segment], number: Callable[[int, int], int]) -> tuple[Segment, ...]:
    slots = [s.modality for s in segments if isinstance(s, MediaSegment)]
    return tuple(
        replace(s, index=number(s.index, slots.count(s.modality))) if isinstance(s, MediaSegment) else s
        for s in segments
    )


class Instructing(JinjaTemplate):
    """Adds an instruction of its own to a raw prompt."""

    def parse(self, prompt: str, media: Sequence[Modality]) -> tuple[Segment, ...]:
        return (*super().parse(prompt, media), TextSegment("Be short."))


class Tidy(JinjaTemplate):
    """Tidies a raw prompt up: no capitals."""

    def parse(self, prompt: str, media: Sequence[Modality]) -> tuple[Segment, ...]:
        return super().parse(prompt.lower(), media)


class Trusting(JinjaTemplate):
    """What a user typed is as good as the template's own words."""

    def render(self, messages: Sequence[Message]) -> tuple[Segment, ...]:
        segments = super().render(messages)
        return tuple(replace(s, trusted=True) if isinstance(s, TextSegment) else s for s in segments)


class Searching(JinjaTemplate):
    """Finds its slots by searching the text, the user's too."""

    def render(self, messages: Sequence[Message]) -> tuple[Segment, ...]:
        found: list[Segment] = []
        for segment in super().render(messages):
            found.append(segment)
            marks = [
                p for p in self.placeholders if isinstance(segment, TextSegment) and p.text in segment.text
            ]
            found += [MediaSegment(mark.modality, 0) for mark in marks]
        return tuple(found)


def without_system(adapter: Adapter) -> Adapter:
    """The default system prompt moved with a release."""
    return _source(adapter, "You are a helpful assistant.", "You are an assistant.")


def without_newline(adapter: Adapter) -> Adapter:
    return _source(adapter, "<|im_end|>\\\\n", "<|im_end|>")


def beginning_with_bos(folder: Path) -> None:
    """A tokenizer that begins each text with a token of which the adapter knows nothing."""
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    file.write_text(json.dumps({**settings, "add_bos_token": True, "bos_token": "<|endoftext|>"}))


def _source(adapter: Adapter, old: str, new: str) -> Adapter:
    template: Any = adapter.prompt
    changed = template.source.replace(old.replace("\\\\", "\\"), new)
    assert changed != template.source
    return replace(adapter, prompt=replace(template, source=changed))


def _looked_through(info: MediaInfo, read: Read, ops: MediaOps) -> Mapping[str, Any]:
    """Another library's error, raised on."""
    try:
        read(SourceSpec())
    except MMCoreError as error:
        raise ValueError("cannot read") from error
    return {}


def _hushed(info: MediaInfo, read: Read, ops: MediaOps) -> Mapping[str, Any]:
    """An error is passed on as a level."""
    try:
        return {"max_pixels": 28 * 28 * 64 if read(SourceSpec()).data.size else 1}
    except MMCoreError:
        return {"fps": object.__new__(_Unsaid)}


class _Unsaid:
    def __str__(self) -> str:
        raise LookupError("no level")

    __repr__ = __str__


FAULTS = (
    Broken("too_many_items_are_refused", no_video_placeholder, name="no placeholder of videos", hidden=True),
    Broken("too_many_items_are_refused", misspelt_placeholder, name="misspelt placeholder", hidden=True),
    Broken(
        "bad_media_are_refused", lambda a: replace(a, survey=_looked_through), name="bare survey", hidden=True
    ),
    Broken("bad_media_are_refused", lambda a: replace(a, survey=_hushed), name="hushed survey"),
    Broken("ranges_use_each_row_once", worse_part("prompt", Doubled)),
    Broken("ranges_use_each_row_once", worse_part("prompt", Lost)),
    Broken("media_keep_their_order", worse_part("prompt", Backwards)),
    Broken("media_keep_their_order", worse_part("prompt", Rotated)),
    Broken("text_alone_is_untouched", worse_part("prompt", Instructing), hidden=True),
    Broken("text_alone_is_untouched", worse_part("prompt", Tidy), hidden=True),
    Broken("a_typed_placeholder_takes_no_slot", worse_part("prompt", Trusting), hidden=True),
    Broken("a_typed_placeholder_takes_no_slot", worse_part("prompt", Searching), hidden=True),
    Broken("the_template_is_the_checkpoint_s_own", without_system, name="another system prompt", hidden=True),
    Broken("the_template_is_the_checkpoint_s_own", without_newline, name="no newline", hidden=True),
    Broken("the_template_is_the_checkpoint_s_own", rewrite=beginning_with_bos, name="no BOS", hidden=True),
)
