"""Keys: what changes an item's rows changes its key, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mmcore.adapter import DecodingDefaults, IgnoredWeight, MediaLimits, Placeholder, WeightRule
from mmcore.inputs.framing import hash_values
from mmcore.inputs.ops import NumpyOps
from mmcore.inputs.pipeline import InputPipeline
from mmcore.inputs.template import JinjaTemplate, PlainTemplate
from mmcore.request import DecodedMedia, MediaInfo, PreparedRequest
from mmcore.testing.law import law
from mmcore.testing.laws.rows import decoded
from mmcore.testing.samples import Medium, Picture, Sound, media
from mmcore.testing.subject import Subject


@dataclass(frozen=True, slots=True)
class Touched:
    """A medium with one value changed by a little."""

    like: Medium

    @property
    def info(self) -> MediaInfo:
        return self.like.info

    def media(self) -> DecodedMedia:
        given = self.like.media()
        data = given.data.copy()
        first = data.reshape(-1)[:1]
        first[:] = first + 0.01 if isinstance(self.like, Sound) else first ^ 1
        return replace(given, data=data)

    def given(self) -> Any:
        media = self.media()
        return (media.data, media.sample_rate) if isinstance(self.like, Sound) else media.data


def asked(
    subject: Subject, *items: Any, pipeline: InputPipeline | None = None, **more: Any
) -> PreparedRequest:
    """The media alone, as one user's message; ``more`` goes to `InputPipeline.prepare_chat`."""
    parts = [{"type": i.info.modality, i.info.modality: i.given()} for i in items]
    if "uuid" in more:
        parts[0]["uuid"] = more.pop("uuid")
    messages = [{"role": "user", "content": parts}]
    return (pipeline or subject.pipeline).prepare_chat(messages, request_id="keyed", **more)


def keys_of(request: PreparedRequest) -> list[tuple[bytes, bytes]]:
    return [(item.processor_key, item.encoder_key) for item in request.items]


def _all_other(found: PreparedRequest, wanted: PreparedRequest, what: str) -> None:
    for one, other in zip(found.items, wanted.items, strict=False):
        same = one.processor_key == other.processor_key or one.encoder_key == other.encoder_key
        assert not same, f"{what}, and the key stays"


@law(needs=("ranges_use_each_row_once",), item=media, seed=lambda s: st.integers(60, 70))
def a_key_is_the_content_s_own(subject: Subject, item: Medium, seed: int) -> None:
    """The same content has one key in any place; another pixel, salt, UUID or option gives another."""
    first = asked(subject, item)
    assert keys_of(asked(subject, item)) == keys_of(first), "the same content has another key the second time"
    _all_other(asked(subject, Touched(item)), first, "one value changes")
    _all_other(asked(subject, item, cache_salt="tenant"), first, "the salt changes")
    named = asked(subject, item, uuid="name")
    _all_other(named, first, "a UUID is given")
    _all_other(asked(subject, Touched(item), uuid="name"), named, "a UUID comes with another content")
    for options in subject.family.options.get(item.info.modality, ()):
        _all_other(asked(subject, item, mm_processor_kwargs=options), first, f"{options} is asked for")
    if isinstance(item, Picture) and item.width != item.height:
        turned = [Flat(item.width, item.height), Flat(item.height, item.width)]
        _all_other(asked(subject, turned[0]), asked(subject, turned[1]), "a picture of one colour is turned")
    if subject.max_items > 1:
        other = replace(item, seed=seed)
        pair = keys_of(asked(subject, item, other))
        assert keys_of(asked(subject, other, item)) == pair[::-1], "a key depends on its item's place"


@dataclass(frozen=True, slots=True)
class Flat:
    """A picture of one colour."""

    width: int
    height: int

    @property
    def info(self) -> MediaInfo:
        return MediaInfo("image", width=self.width, height=self.height)

    def given(self) -> np.ndarray:
        return np.full((self.height, self.width, 3), 90, np.uint8)


# ------------------------------------------------------------------ fields


def another(value: Any) -> Any:
    """A value of the same kind, a little different; the same one where nobody can tell how."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 1.25 + 0.125
    if isinstance(value, tuple) and value:
        return (another(value[0]), *value[1:])
    if is_dataclass(value) and not isinstance(value, type):
        return next((changed for _, changed in variants(value)), value)
    return value


def variants(part: Any) -> Iterator[tuple[str, Any]]:
    """(field, the part with that field changed) for each field that can be, alone."""
    for one in fields(part):
        value = getattr(part, one.name)
        inner = list(variants(value)) if is_dataclass(value) and not isinstance(value, type) else []
        for name, changed in [(f"{one.name}.{name}", made) for name, made in inner] or [("", another(value))]:
            if one.init and changed is not value and changed != value:
                try:
                    yield name or one.name, replace(part, **{one.name: changed})
                except Exception:  # a value that this part refuses
                    continue


def effect_of(subject: Subject, processor: Any, item: Medium) -> Any:
    """What a processor makes of a medium; None where it makes nothing."""
    try:
        (plan,) = processor.measure([item.info], [processor])
        arrays = processor.preprocess(decoded(item, plan), plan, NumpyOps()).arrays
        return hash_values("effect", plan, {name: np.asarray(array) for name, array in arrays.items()})
    except Exception:  # fields that do not fit each other
        return None


def collated(subject: Subject, encoder: Any, item: Medium) -> Any:
    """What an encoder packs of a medium; None where it cannot."""
    processor = subject.adapter.inputs
    (plan,) = processor.measure([item.info], [processor])
    try:
        arrays: Mapping[str, Any] = encoder.collate(
            [processor.preprocess(decoded(item, plan), plan, NumpyOps())], (plan,)
        )
        return hash_values("effect", {name: np.asarray(array) for name, array in arrays.items()})
    except Exception:
        return None


@law(needs=("preprocess_is_pure",), cost=2, item=media)
def what_changes_an_item_is_in_its_key(subject: Subject, item: Medium) -> None:
    """A field of processor or encoder that changes what becomes of a medium changes its key, each in turn."""
    adapter = subject.adapter
    plain = effect_of(subject, adapter.inputs, item)
    for name, changed in variants(adapter.inputs):
        made = effect_of(subject, changed, item)
        same = hash_values("part", changed) == hash_values("part", adapter.inputs)
        assert made in (None, plain) or not same, f"the processor's {name} changes the arrays, not the key"
    packed = collated(subject, adapter.encoder, item)
    for name, changed in variants(adapter.encoder):
        made = collated(subject, changed, item)
        same = hash_values("part", changed) == hash_values("part", adapter.encoder)
        assert made in (None, packed) or not same, f"the encoder's {name} changes what is packed, not the key"


KEPT_OUT = (
    MediaLimits,
    DecodingDefaults,
    WeightRule,
    IgnoredWeight,
    Placeholder,
    JinjaTemplate,
    PlainTemplate,
)
"""What no item's rows depend on: in a key it would only make what is cached unfindable."""


def held(part: Any) -> Iterator[Any]:
    """All values that go into a key with this part."""
    yield part
    if isinstance(part, Mapping):
        yield from (inner for value in part.values() for inner in held(value))
    elif isinstance(part, tuple | list | set | frozenset):
        yield from (inner for value in part for inner in held(value))
    elif is_dataclass(part) and not isinstance(part, type):
        yield from (inner for one in fields(part) if one.compare for inner in held(getattr(part, one.name)))


@law(needs=("a_key_is_the_content_s_own",), cost=4, item=media)
def other_parts_leave_keys_alone(subject: Subject, item: Medium) -> None:
    """Template, limits, decoding and weight rules are in no item's key, nor is what else a prompt says."""
    for part in (subject.adapter.inputs, subject.adapter.encoder):
        found = [type(value).__name__ for value in held(part) if isinstance(value, KEPT_OUT)]
        assert not found, f"{type(part).__name__} holds {found[0]} in a field that is part of every key"
    if subject.takes_no_words:
        return
    modality = item.info.modality
    said = [{"type": "text", "text": "a word"}, {"type": modality, modality: item.given()}]
    request = subject.pipeline.prepare_chat([{"role": "user", "content": said}], request_id="said")
    assert keys_of(request) == keys_of(asked(subject, item)), "the text beside an item is in its key"
