"""Opened media to `PreparedItem`s: options, limits, plans and keys of all items of a prompt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from mmcore.adapter import Adapter, Fusion, InputProcessor, MediaLimits
from mmcore.config import MediaPolicy
from mmcore.errors import (
    MediaLimitError,
    MMCoreError,
    PluginError,
    UnknownModalityError,
    plugin_code,
)
from mmcore.inputs.framing import Framed
from mmcore.inputs.hashing import encoder_key, processor_key
from mmcore.inputs.media import OpenedMedia
from mmcore.request import EncodeCost, ItemPlan, MediaInfo, Modality, PreparedItem, Rows

_ELEMENT_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True, eq=False, slots=True)
class OpenedItem:
    """One medium of a prompt with what the caller said about it. ``name``: how errors call it."""

    name: str
    modality: Modality
    media: OpenedMedia
    options: Mapping[str, Any] = field(default_factory=dict)
    uuid: str = ""


@dataclass(frozen=True, slots=True)
class ItemMaker:
    """Makes the items of one prompt. ``dtype`` is the tower's."""

    adapter: Adapter
    checkpoint_digest: bytes
    policy: MediaPolicy
    dtype: str
    backend: str
    inputs_framed: Framed = field(init=False)
    encoder_framed: Framed = field(init=False)
    """The adapter's parts as they go into keys."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs_framed", Framed.of(self.adapter.inputs))
        object.__setattr__(self, "encoder_framed", Framed.of(self.adapter.encoder))

    def make(self, items: Sequence[OpenedItem], salt: str) -> tuple[PreparedItem, ...]:
        """Raises `MediaLimitError`, `UnsupportedOptionError`, `PluginError`."""
        check_count(self.adapter, [item.modality for item in items])
        processors = tuple(self._processor(item) for item in items)
        for item, processor in zip(items, processors, strict=True):
            with naming(item.name):
                check_limits(item.media.info, processor.limits.get(item.modality, MediaLimits()))
        plans = self._measure(items, processors)
        return tuple(
            self._prepared(item, processor, plan, salt)
            for item, processor, plan in zip(items, processors, plans, strict=True)
        )

    def _processor(self, item: OpenedItem) -> InputProcessor:
        if not item.options:
            return self.adapter.inputs
        with naming(item.name), plugin_code(self.adapter.name, "reading options"):
            return self.adapter.inputs.with_options(dict(item.options))

    def _measure(
        self, items: Sequence[OpenedItem], processors: Sequence[InputProcessor]
    ) -> tuple[ItemPlan, ...]:
        if not items:
            return ()
        infos = [item.media.info for item in items]
        whole = items[0].name if len(items) == 1 else "the media"
        with naming(whole), plugin_code(self.adapter.name, "measuring media"):
            plans = tuple(self.adapter.inputs.measure(infos, processors))
        if len(plans) != len(items):
            raise PluginError(f"adapter {self.adapter.name!r} made {len(plans)} plans for {len(items)} items")
        for item, plan in zip(items, plans, strict=True):
            with naming(item.name):
                _check_plan(self.adapter, plan)
        return plans

    def _prepared(
        self, item: OpenedItem, processor: InputProcessor, plan: ItemPlan, salt: str
    ) -> PreparedItem:
        inner = processor_key(
            item.modality,
            item.media.digest,
            processor if item.options else self.inputs_framed,
            item.options,
            plan,
            uuid=item.uuid,
            salt=salt,
        )
        outer = encoder_key(
            inner, self.encoder_framed, self.checkpoint_digest, dtype=self.dtype, backend=self.backend
        )
        return PreparedItem(
            modality=item.modality,
            source=item.media.source,
            content_digest=item.media.digest,
            plan=plan,
            cost=self._cost(plan),
            processor_key=inner,
            encoder_key=outer,
            options=tuple(sorted(item.options.items())),
            uuid=item.uuid,
        )

    def _cost(self, plan: ItemPlan) -> EncodeCost:
        with plugin_code(self.adapter.name, "estimating an item's cost"):
            cost = self.adapter.encoder.cost(plan)
        return replace(cost, output_bytes=plan.rows * plan.width * _ELEMENT_BYTES[self.dtype])


def check_modalities(adapter: Adapter, modalities: Sequence[Modality]) -> None:
    """Raises `UnknownModalityError` naming what the model takes."""
    known = adapter.inputs.modalities
    for modality in modalities:
        if modality not in known:
            raise UnknownModalityError(f"this model takes {' and '.join(known)}, not {modality[:40]!r}")


def check_count(adapter: Adapter, modalities: Sequence[Modality]) -> None:
    for modality in dict.fromkeys(modalities):
        limit = adapter.inputs.limits.get(modality, MediaLimits()).max_items
        if limit and len(modalities) > limit:
            raise MediaLimitError(f"{len(modalities)} media in one prompt are over max_items {limit}")


def check_limits(info: MediaInfo, limits: MediaLimits) -> None:
    """What one item may be, by its header. Raises `MediaLimitError` naming the limit."""
    if info.modality == "audio":
        _check_sound(info, limits)
        return
    small, large = sorted((info.width, info.height))
    shape = f"{info.width}x{info.height} pixels"
    if small < limits.min_side:
        raise MediaLimitError(f"{shape}: the smaller side is under min_side {limits.min_side}")
    if limits.max_side and large > limits.max_side:
        raise MediaLimitError(f"{shape}: the larger side is over max_side {limits.max_side}; resize it")
    if limits.max_aspect and large > limits.max_aspect * small:
        raise MediaLimitError(f"{shape}: the aspect is over max_aspect {limits.max_aspect:g}; crop it")
    if limits.max_frames and info.frames > limits.max_frames:
        raise MediaLimitError(f"{info.frames} frames are over max_frames {limits.max_frames}; cut the video")
    if info.modality == "video" and limits.max_seconds and info.seconds > limits.max_seconds:
        raise MediaLimitError(
            f"the video lasts {info.seconds:.2f} s, over max_seconds {limits.max_seconds:g}; cut it"
        )


def _check_sound(info: MediaInfo, limits: MediaLimits) -> None:
    least = max(1, limits.min_samples)
    if info.samples < least:
        raise MediaLimitError(f"the sound has {info.samples} samples, under min_samples {least}")
    if limits.max_seconds and info.seconds > limits.max_seconds:
        raise MediaLimitError(
            f"the sound lasts {info.seconds:.2f} s, over max_seconds {limits.max_seconds:g}; cut it"
        )


def _check_plan(adapter: Adapter, plan: ItemPlan) -> None:
    """A plan that contradicts itself is the adapter's fault, and must not reach the scheduler."""
    placed = sum(piece.count for piece in plan.pieces if isinstance(piece, Rows))
    wanted = 0 if adapter.fusion is Fusion.CROSS_ATTENTION else plan.rows
    if placed != wanted or plan.rows < 1 or plan.width < 1:
        raise PluginError(
            f"adapter {adapter.name!r} planned {plan.rows} rows of {plan.width}, and placed {placed}"
        )


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Errors inside say which item: ``image 2 of 3: ...``."""
    try:
        yield
    except MMCoreError as error:
        raise type(error)(f"{name}: {error}") from error
