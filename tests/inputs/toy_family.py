"""A toy family for the tests of the inputs room: real tokenizer, real template, no tower."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from mmcore.adapter import Adapter, Fusion, Layout, MediaLimits, MediaOps, Placeholder
from mmcore.decoder_config import DecoderConfig, Rope
from mmcore.errors import UnsupportedOptionError
from mmcore.inputs.decoding import PlainDecoding
from mmcore.inputs.pipeline import InputPipeline
from mmcore.inputs.template import JinjaTemplate, PlainTemplate
from mmcore.inputs.tokenizer import HFTokenizer
from mmcore.request import (
    DecodedMedia,
    EncodeCost,
    EncoderInput,
    ItemPlan,
    MediaInfo,
    Modality,
    Rows,
    SourceSpec,
    TokenPositions,
    Tokens,
)

SPECIALS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|audio_pad|>",
)
TEMPLATE = (
    "{% set count = namespace(value=0) %}"
    "{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}"
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    "{% endif %}"
    "<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for content in message['content'] %}"
    "{% if content['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif content['type'] == 'audio' %}<|audio_pad|>"
    "{% elif 'text' in content %}{{ content['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_CORPUS = (
    "Describe this image in detail. What does the picture say? You are a helpful assistant.",
    "user assistant system the quick brown fox\n\njumps over  the lazy dog 0123456789",
)


@cache
def byte_level_json() -> str:
    """A small byte-level BPE tokenizer with merges, as ``tokenizer.json``."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=360,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS * 4, trainer)
    tokenizer.add_special_tokens(list(SPECIALS))
    return tokenizer.to_str()


@cache
def metaspace_json(scheme: str = "first") -> str:
    """A tokenizer of the sentencepiece kind: blanks are ▁, one is put before the text."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=False, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    trainer = trainers.BpeTrainer(
        vocab_size=260, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False
    )
    tokenizer.train_from_iterator([*_CORPUS, "".join(map(chr, range(33, 127)))] * 4, trainer)
    tokenizer.add_special_tokens(["<image>"])
    return tokenizer.to_str()


@cache
def unigram_json() -> str:
    """A unigram tokenizer whose special tokens are in the model's own vocabulary."""
    pieces = [("<unk>", 0.0), ("</s>", 0.0), ("▁", -2.0), ("▁the", -3.0)]
    pieces += [(chr(c), -5.0 - c / 100) for c in range(33, 127)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(["<unk>", "</s>"])
    return tokenizer.to_str()


class ToyCheckpoint:
    """A tokenizer, a template and a digest."""

    def __init__(self, source: str | None = None, digest: bytes = b"\1" * 32) -> None:
        self.tokenizer = HFTokenizer(source or byte_level_json())
        self._digest = digest
        self.chat_template = TEMPLATE

    tensor_names: tuple[str, ...] = ()

    def json(self, name: str) -> Mapping[str, Any]:
        return {}

    def text(self, name: str) -> str | None:
        return None

    def digest(self) -> bytes:
        return self._digest


@dataclass(frozen=True)
class ToyInputs:
    """One row per ``cell`` x ``cell`` pixels, one per ``hop`` samples at 16 kHz."""

    cell: int = 28
    hop: int = 1600
    framed: bool = False
    cross: bool = False
    max_side: int = 4096
    max_aspect: float = 100.0
    max_seconds: float = 30.0
    max_items: int = 0
    fails: str = ""
    note: object = field(default=None, compare=False)

    @property
    def modalities(self) -> tuple[Modality, ...]:
        return ("image", "audio")

    @property
    def limits(self) -> Mapping[Modality, MediaLimits]:
        return {
            "image": MediaLimits(
                min_side=2, max_side=self.max_side, max_aspect=self.max_aspect, max_items=self.max_items
            ),
            "audio": MediaLimits(max_seconds=self.max_seconds, max_items=self.max_items),
        }

    def measure(self, infos: Sequence[MediaInfo], options: Sequence[Any]) -> tuple[ItemPlan, ...]:
        if self.fails == "measure":
            raise ValueError("a mistake of the plugin's")
        return tuple(own._plan(info) for own, info in zip(options, infos, strict=True))

    def _plan(self, info: MediaInfo) -> ItemPlan:
        source = SourceSpec(sample_rate=16_000) if info.modality == "audio" else SourceSpec()
        geometry: tuple[int, ...] = (max(1, round(info.seconds * 16_000 / self.hop)),)
        if info.modality == "image":
            geometry = (-(-info.height // self.cell), -(-info.width // self.cell))
        rows = math.prod(geometry)
        pieces: tuple[Rows | Tokens, ...] = (Rows(rows),)
        if self.framed:
            pieces = (
                Tokens((7,)),
                Rows(1),
                Tokens((8, 9)),
                *([Rows(rows - 1)] if rows > 1 else []),
                Tokens((7,)),
            )
        return ItemPlan(() if self.cross else pieces, rows, 8, geometry, source=source)

    def preprocess(self, media: DecodedMedia, plan: ItemPlan, ops: MediaOps) -> EncoderInput:
        if self.fails == "preprocess":
            raise ValueError("a mistake of the plugin's at 0x7f00deadbeef")
        if media.modality == "audio":
            return EncoderInput({"samples": media.data})
        return EncoderInput({"pixels": ops.normalize(media.data, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))})

    def with_options(self, options: Mapping[str, Any]) -> ToyInputs:
        for name in options:
            if name not in ("cell", "hop"):
                raise UnsupportedOptionError(f"option {name!r} is unknown; use cell or hop")
        return replace(self, **options)


@dataclass(frozen=True)
class ToyEncoder:
    depth: int = 2

    def build(self) -> Any:
        raise NotImplementedError

    def collate(self, inputs: Sequence[EncoderInput], plans: Sequence[ItemPlan]) -> Mapping[str, np.ndarray]:
        return {}

    def cost(self, plan: ItemPlan) -> EncodeCost:
        return EncodeCost(work=100 * plan.rows)


@dataclass(frozen=True)
class ToyContext:
    """States for rows and text."""

    def length(self, plans: Sequence[ItemPlan], text_ids: Sequence[int]) -> int:
        return sum(plan.rows for plan in plans) + len(text_ids)

    def work(self, length: int) -> int:
        return 100 * length

    def build(self) -> Any:
        raise NotImplementedError


def two_axes(layout: Layout) -> TokenPositions:
    steps = np.arange(layout.num_tokens)
    return TokenPositions(np.stack([steps, steps // 2]), delta=0)


def toy_adapter(checkpoint: ToyCheckpoint, **parts: Any) -> Adapter:
    tokenizer = checkpoint.tokenizer
    placeholders = tuple(
        Placeholder(modality, text, tokenizer.token_id(text) or 0)
        for modality, text in (("image", "<|image_pad|>"), ("audio", "<|audio_pad|>"))
    )
    plain = Adapter(
        name="toy",
        prompt=JinjaTemplate.from_files(checkpoint, placeholders, turn_markers=("<|im_start|>",)),
        inputs=ToyInputs(),
        encoder=ToyEncoder(),
        decoding=PlainDecoding(),
        decoder=DecoderConfig(
            vocab_size=tokenizer.vocab_size,
            hidden_size=8,
            num_layers=1,
            num_heads=1,
            num_kv_heads=1,
            head_dim=8,
            intermediate_size=8,
            positions=Rope(),
            max_length=4096,
        ),
        placeholders=placeholders,
        weights=(),
    )
    return replace(plain, **parts)


def toy_pipeline(
    checkpoint: ToyCheckpoint | None = None, *, adapter: Any = None, **options: Any
) -> InputPipeline:
    """``adapter``: parts that differ from the plain toy."""
    checkpoint = checkpoint or ToyCheckpoint()
    return InputPipeline(toy_adapter(checkpoint, **(adapter or {})), checkpoint, **options)


def cross_pipeline(*, context: bool = False, prefix: Sequence[int] = (1, 2), **options: Any) -> InputPipeline:
    parts = {
        "inputs": ToyInputs(cross=True),
        "fusion": Fusion.CROSS_ATTENTION,
        "context": ToyContext() if context else None,
        "decoding": PrefixDecoding(tuple(prefix)),
        "prompt": PlainTemplate(),
    }
    return toy_pipeline(adapter=parts, **options)


@dataclass(frozen=True)
class PrefixDecoding(PlainDecoding):
    """A decoder prefix with one option, ``task``."""

    start: tuple[int, ...] = ()

    def __init__(self, start: tuple[int, ...]) -> None:
        object.__setattr__(self, "start", start)

    def prefix(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        for name in options:
            if name != "task":
                raise UnsupportedOptionError(f"no decoder option {name!r}")
        return (*self.start, *((options["task"],) if options else ()))


NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


def text_of_json(source: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(source)
    return loaded
