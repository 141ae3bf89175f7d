"""Prompt and media to `PreparedRequest`, and later each item to its `EncoderInput`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from mmcore.adapter import Adapter, FollowUp, Fusion, MediaLimits, Tokenizer
from mmcore.config import MediaPolicy
from mmcore.errors import PlaceholderMismatchError, PromptError, plugin_code
from mmcore.inputs.assemble import RequestAssembler, RequestFacts
from mmcore.inputs.budget import RequestBudget
from mmcore.inputs.chat import read_messages
from mmcore.inputs.fetch import FetchHook, MediaFetcher
from mmcore.inputs.items import ItemMaker, OpenedItem, check_count, check_modalities, naming
from mmcore.inputs.layout import TokenLayout, collapse, lay_out, lay_out_tokens, slot_modalities
from mmcore.inputs.media import OpenedMedia, decode, is_at_hand, open_media, reopen
from mmcore.inputs.ops import NumpyOps
from mmcore.inputs.prompt import ChatMessage, MediaInput, Prompt, ReadPrompt, item_options, read_prompt
from mmcore.inputs.resize import ByDevice, Resizer
from mmcore.inputs.turn import Turn
from mmcore.inputs.uuid_index import UuidIndex
from mmcore.request import (
    EncoderInput,
    MediaSegment,
    PreparedItem,
    PreparedRequest,
    Segment,
    TextSegment,
)
from mmcore.sampling_params import SamplingParams


class PipelineCheckpoint(Protocol):
    """What the pipeline needs of `mmcore.inputs.checkpoint.Checkpoint`."""

    @property
    def tokenizer(self) -> Tokenizer: ...
    def digest(self) -> bytes: ...


class InputPipeline:
    """Thread-safe; on the CPU, off the step loop. ``dtype`` is the tower's, ``kv_dtype`` the KV cache's."""

    def __init__(
        self,
        adapter: Adapter,
        checkpoint: PipelineCheckpoint,
        *,
        policy: MediaPolicy | None = None,
        dtype: str = "float32",
        kv_dtype: str | None = None,
        fetch: FetchHook | None = None,
        fetcher: MediaFetcher | None = None,
        uuids: UuidIndex | None = None,
        max_length: int | None = None,
        resize_threads: int = 1,
        resize_device: ByDevice | None = None,
    ) -> None:
        self.adapter = adapter
        self.tokenizer = checkpoint.tokenizer
        digest = checkpoint.digest()
        self._fetcher = fetcher or MediaFetcher(policy or MediaPolicy(), fetch)
        self._uuids = uuids or UuidIndex()
        self.turn = Turn()
        self._ops = NumpyOps(Resizer(resize_threads, resize_device))
        self._maker = ItemMaker(adapter, digest, self._fetcher.policy, dtype, self._ops.backend)
        self._assembler = RequestAssembler(
            adapter, digest, kv_dtype or dtype, max_length or adapter.decoder.max_length
        )

    # -------------------------------------------------------------- in

    def prepare(
        self, prompt: Prompt, sampling: SamplingParams | None = None, *, request_id: str, priority: int = 0
    ) -> PreparedRequest:
        """A text or token prompt with its media. Raises `InputError`s; nothing of it is kept then."""
        return self._prepare(read_prompt(prompt), sampling, request_id, priority)

    def prepare_chat(
        self,
        messages: Sequence[ChatMessage],
        sampling: SamplingParams | None = None,
        *,
        request_id: str,
        priority: int = 0,
        cache_salt: str = "",
        mm_processor_kwargs: Any = None,
        decoder_options: Mapping[str, Any] | None = None,
    ) -> PreparedRequest:
        """A conversation, rendered with the checkpoint's chat template."""
        turns, media = read_messages(messages)
        read = ReadPrompt(
            messages=turns,
            media=media,
            options=mm_processor_kwargs,
            decoder_options=decoder_options or {},
            salt=cache_salt,
        )
        return self._prepare(read, sampling, request_id, priority)

    def prepare_follow_up(self, request: PreparedRequest, follow_up: FollowUp) -> PreparedRequest:
        """The next link of a chain: the same media, UUIDs and salt, laid out and keyed anew."""
        sampling = follow_up.sampling or request.sampling
        if follow_up.options is None and follow_up.token_ids is None:
            return replace(request, sampling=sampling)
        facts = RequestFacts(
            request_id=request.request_id,
            sampling=sampling,
            priority=request.priority,
            salt=request.salt,
            decoder_options=dict(request.decoder_options),
        )
        items = self._maker.make(
            [_again(i, item, follow_up.options) for i, item in enumerate(request.items)], request.salt
        )
        if self.adapter.fusion is Fusion.CROSS_ATTENTION:
            text_ids = request.cross.text_ids if request.cross else ()
            ids = request.token_ids if follow_up.token_ids is None else follow_up.token_ids
            return self._assembler.assemble(facts, TokenLayout(tuple(ids), ()), items, text_ids)
        ids = follow_up.token_ids or collapse(request, self.adapter)
        modalities = [item.modality for item in items]
        layout = lay_out_tokens(ids, modalities, [item.plan for item in items], self.adapter)
        return self._assembler.assemble(facts, layout, items)

    def accept(self, request: PreparedRequest) -> PreparedRequest:
        """A request that came prepared. Raises `InputError` where it was prepared for another model."""
        self._assembler.check(request)
        return request

    def preprocess(self, item: PreparedItem) -> EncoderInput:
        """Decode and preprocess one item: pure, and the only heavy part. Raises `MediaError`s."""
        media = decode(item.source, item.modality, item.plan.source)
        processor = self.adapter.inputs
        if item.options:
            processor = processor.with_options(dict(item.options))
        return processor.preprocess(media, item.plan, self._ops)

    # -------------------------------------------------------------- steps

    def _prepare(
        self, read: ReadPrompt, sampling: SamplingParams | None, request_id: str, priority: int
    ) -> PreparedRequest:
        with self.turn.taken() if all(is_at_hand(medium.value) for medium in read.media) else nullcontext():
            return self._made(read, sampling, request_id, priority)

    def _made(
        self, read: ReadPrompt, sampling: SamplingParams | None, request_id: str, priority: int
    ) -> PreparedRequest:
        facts = RequestFacts(
            request_id=request_id,
            sampling=sampling or SamplingParams(),
            priority=priority,
            salt=read.salt,
            decoder_options=dict(read.decoder_options),
        )
        modalities = [medium.modality for medium in read.media]
        check_modalities(self.adapter, modalities)
        check_count(self.adapter, modalities)
        if self.adapter.fusion is Fusion.CROSS_ATTENTION:
            return self._prepare_cross(read, facts)
        if read.decoder_options:
            self.adapter.decoding.prefix(read.decoder_options)  # refuses by name what it does not know
        if read.token_ids is not None:
            return self._prepare_tokens(read, read.token_ids, facts)
        segments = self._segments(read)
        items = self._items(read, _slot_order(segments, read.media))
        layout = lay_out(segments, [item.plan for item in items], self.adapter, self.tokenizer)
        return self._assembler.assemble(facts, layout, items)

    def _prepare_tokens(
        self, read: ReadPrompt, token_ids: Sequence[int], facts: RequestFacts
    ) -> PreparedRequest:
        given = [medium.modality for medium in read.media]
        slots = slot_modalities(token_ids, given, self.adapter)
        order = list(range(len(given)))
        if sorted(slots) == sorted(given):
            order = _slot_order(_numbered(slots), read.media)
        items = self._items(read, order)
        modalities = [item.modality for item in items]
        layout = lay_out_tokens(token_ids, modalities, [item.plan for item in items], self.adapter)
        return self._assembler.assemble(facts, layout, items)

    def _prepare_cross(self, read: ReadPrompt, facts: RequestFacts) -> PreparedRequest:
        """The prompt is the decoder's, or with a context stage the stage's text."""
        if read.token_ids is not None:
            ids = read.token_ids
        else:
            texts = [s for s in self._segments(read) if isinstance(s, TextSegment)]
            ids = self.tokenizer.encode_segments(texts) if texts else ()
        if not read.media and self.adapter.context is None:
            known = " or ".join(self.adapter.inputs.modalities)
            raise PlaceholderMismatchError(f"this model answers about one {known}; the prompt brings none")
        items = self._items(read, range(len(read.media)))
        with plugin_code(self.adapter.name, "making the decoder prefix"):
            if self.adapter.context is not None:
                prefix = self.adapter.decoding.prefix(facts.decoder_options)
                return self._assembler.assemble(facts, TokenLayout(tuple(prefix), ()), items, ids)
            if ids and facts.decoder_options:
                raise PromptError("give a decoder prompt or decoder_options, not both")
            ids = ids or self.adapter.decoding.prefix(facts.decoder_options)
        return self._assembler.assemble(facts, TokenLayout(tuple(ids), ()), items)

    def _segments(self, read: ReadPrompt) -> tuple[Segment, ...]:
        with plugin_code(self.adapter.name, "rendering the prompt"):
            if read.messages is not None:
                return self.adapter.prompt.render(read.messages)
            assert read.text is not None
            return self.adapter.prompt.parse(read.text, [medium.modality for medium in read.media])

    def _items(self, read: ReadPrompt, order: Sequence[int]) -> tuple[PreparedItem, ...]:
        options = item_options(read.options, read.media)
        budget = RequestBudget(self._fetcher.policy)
        opened = [self._open(read.media[i], options[i], read.salt, budget) for i in order]
        items = self._maker.make(opened, read.salt)
        for item, made in zip(opened, items, strict=True):
            if item.modality == "video":
                with naming(item.name):
                    budget.take_frames(item.media.info, made.plan)
        for item in opened:
            if item.uuid:  # only now: what was refused above is not worth keeping
                self._uuids.remember(read.salt, item.modality, item.uuid, item.media)
        return items

    def _open(
        self, medium: MediaInput, options: Mapping[str, Any], salt: str, budget: RequestBudget
    ) -> OpenedItem:
        with naming(medium.name):
            if medium.value is not None:
                limits = self.adapter.inputs.limits.get(medium.modality, MediaLimits())
                media = open_media(medium.modality, medium.value, self._fetcher, limits.sample_rate)
            elif medium.uuid:
                media = self._uuids.find(salt, medium.modality, medium.uuid)
            else:
                raise PromptError("neither content nor a UUID is given")
            budget.take(media)
            options = {**self._survey(media), **options}
        return OpenedItem(medium.name, medium.modality, media, options, medium.uuid)

    def _survey(self, media: OpenedMedia) -> Mapping[str, Any]:
        """Options that the family reads off the whole of a medium."""
        if self.adapter.survey is None:
            return {}
        read = partial(decode, media.source, media.info.modality)
        with plugin_code(self.adapter.name, "looking through a medium"):
            return self.adapter.survey(media.info, read, self._ops)


def _again(index: int, item: PreparedItem, options: Mapping[str, Any] | None) -> OpenedItem:
    """An item of an earlier link, opened as it was; an option replaces the old one of its name."""
    media = reopen(item)
    kept = {**dict(item.options), **(options or {})}
    return OpenedItem(f"item {index + 1} ({item.modality})", item.modality, media, kept, item.uuid)


def _numbered(modalities: Sequence[str]) -> list[MediaSegment]:
    counts: dict[str, int] = {}
    segments = []
    for modality in modalities:
        counts[modality] = counts.get(modality, -1) + 1
        segments.append(MediaSegment(modality, counts[modality]))
    return segments


def _slot_order(segments: Sequence[Segment], media: Sequence[MediaInput]) -> list[int]:
    """Which medium, by its place among those given, takes each slot. Each is used once."""
    places = {(medium.modality, medium.number - 1): place for place, medium in enumerate(media)}
    slots = [(s.modality, s.index) for s in segments if isinstance(s, MediaSegment)]
    if sorted(slots) != sorted(places):
        raise PlaceholderMismatchError(f"the prompt has {len(slots)} media slots for {len(media)} media")
    return [places[slot] for slot in slots]
