"""What the paper adapters share: a tokenizer of characters, a tower of hashes, a small decoder row.

No torch anywhere. A toy row is an int that depends on every byte of its item and on its own number.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from mmcore.adapter import (
    CheckpointFiles,
    DecodingDefaults,
    FollowUp,
    Generation,
    LogitsRule,
    MediaLimits,
    MediaOps,
    Placeholder,
    StopRule,
)
from mmcore.decoder_config import DecoderConfig, LearnedPositions
from mmcore.errors import UnsupportedOptionError
from mmcore.request import (
    DecodedMedia,
    EncodeCost,
    EncoderInput,
    ItemPlan,
    MediaInfo,
    MediaPart,
    MediaSegment,
    Message,
    Modality,
    PreparedRequest,
    Result,
    Segment,
    TextPart,
    TextSegment,
)

CHARACTERS = 256


@dataclass(frozen=True)
class CharTokenizer:
    """A character is its code, a special token 256 and up; implements `mmcore.adapter.Tokenizer`."""

    specials: tuple[str, ...]

    @property
    def vocab_size(self) -> int:
        return CHARACTERS + len(self.specials)

    def encode(self, text: str, *, special_tokens: bool) -> tuple[int, ...]:
        ids: list[int] = []
        while text:
            found = next((s for s in self.specials if special_tokens and text.startswith(s)), None)
            ids.append(
                ord(text[0]) % CHARACTERS if found is None else CHARACTERS + self.specials.index(found)
            )
            text = text[len(found or " ") :]
        return tuple(ids)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        known = (self.specials[i - CHARACTERS] if i >= CHARACTERS else chr(i) for i in ids)
        return "".join(s for s in known if not (skip_special_tokens and s in self.specials))

    def token_id(self, token: str) -> int | None:
        ids = self.encode(token, special_tokens=True)
        return ids[0] if len(ids) == 1 else None


@dataclass(frozen=True)
class ToyFiles:
    """A checkpoint of nothing but a tokenizer; implements `mmcore.adapter.CheckpointFiles`."""

    specials: tuple[str, ...]
    chat_template: str | None = None

    def json(self, name: str) -> Mapping[str, Any]:
        return {}

    def text(self, name: str) -> str | None:
        return None

    @property
    def tokenizer(self) -> CharTokenizer:
        return CharTokenizer(self.specials)


def token(files: CheckpointFiles, text: str) -> int:
    found = files.tokenizer.token_id(text)
    assert found is not None, text
    return found


def placeholder(files: CheckpointFiles, modality: Modality, text: str) -> Placeholder:
    return Placeholder(modality, text, token(files, text))


@dataclass(frozen=True)
class ToyInputs:
    """The members of an input processor that do not differ between the paper families."""

    modalities: tuple[Modality, ...] = field(default=("image",), kw_only=True)

    @property
    def limits(self) -> Mapping[Modality, MediaLimits]:
        return {}

    def measure(self, infos: Sequence[MediaInfo], options: Sequence[Any]) -> tuple[ItemPlan, ...]:
        return tuple(own.plan(info) for own, info in zip(options, infos, strict=True))

    def with_options(self, options: Mapping[str, Any]) -> Any:
        unknown = options.keys() - {f.name for f in fields(self)}
        if unknown:
            raise UnsupportedOptionError(f"unknown processor option {sorted(unknown)}; leave it out")
        return replace(self, **options)

    def preprocess(self, media: DecodedMedia, plan: ItemPlan, ops: MediaOps) -> EncoderInput:
        return EncoderInput({"media": media.data})


@dataclass(frozen=True)
class ToyEncoder:
    """``forward`` gives a list of ints, one a row, in place of a tensor [rows, width]."""

    name: str

    def build(self) -> Any:
        return _rows_of_digests

    def collate(self, inputs: Sequence[EncoderInput], plans: Sequence[ItemPlan]) -> Mapping[str, np.ndarray]:
        digests = [zlib.crc32(i.arrays["media"].tobytes()) for i in inputs]
        return {"digests": np.array(digests), "counts": np.array([plan.rows for plan in plans])}

    def cost(self, plan: ItemPlan) -> EncodeCost:
        return EncodeCost(work=plan.rows)


def _rows_of_digests(digests: np.ndarray, counts: np.ndarray) -> list[int]:
    return [
        hash((d, row)) for d, n in zip(digests.tolist(), counts.tolist(), strict=True) for row in range(n)
    ]


@dataclass
class Listener:
    """A stop rule: keeps what it hears, and ends a sequence by its length or by its logits."""

    ends: Callable[[Sequence[float]], bool] = bool
    logits: list[float] = field(default_factory=list)

    def observe(self, token_id: int, logit: float, logprob: float) -> bool:
        self.logits.append(logit)
        return self.ends(self.logits)


@dataclass(frozen=True)
class ToyDecoding:
    """Greedy until a stop id, no rules, one link; implements `mmcore.adapter.Decoding`."""

    defaults: DecodingDefaults
    start: tuple[int, ...] = ()

    def prefix(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        return self.start

    def logits_rules(self, request: PreparedRequest) -> tuple[LogitsRule, ...]:
        return ()

    def stop_rule(self, request: PreparedRequest) -> StopRule | None:
        return None

    def finish(self, generation: Generation) -> Result:
        return Result(generation.text)

    def follow_up(self, request: PreparedRequest, result: Result) -> FollowUp | None:
        return None


def template(
    files: CheckpointFiles, slots: Mapping[Modality, str], start: str = "", end: str = ""
) -> ToyTemplate:
    return ToyTemplate(slots, start, end)


def plain_decoding(files: CheckpointFiles, start: tuple[str, ...] = ()) -> ToyDecoding:
    return ToyDecoding(ends(files), tuple(token(files, s) for s in start))


def ends(files: CheckpointFiles) -> DecodingDefaults:
    return DecodingDefaults(stop_ids=(token(files, "</s>"),))


@dataclass(frozen=True)
class ToyTemplate:
    """Media and text as they come, between a start and an end; implements `mmcore.adapter.PromptTemplate`."""

    placeholders: Mapping[Modality, str]
    start: str = ""
    end: str = ""

    def render(self, messages: Sequence[Message]) -> tuple[Segment, ...]:
        slots: Counter[Modality] = Counter()
        segments: list[Segment] = [TextSegment(self.start, trusted=True)]
        for part in (part for message in messages for part in message.content):
            if isinstance(part, MediaPart):
                segments.append(MediaSegment(part.modality, slots[part.modality]))
                slots[part.modality] += 1
            else:
                segments.append(TextSegment(part.text))
        return (*segments, TextSegment(self.end, trusted=True))

    def parse(self, prompt: str, media: Sequence[Modality]) -> tuple[Segment, ...]:
        return self.render([Message("user", (*map(MediaPart, media), TextPart(prompt)))])


def toy_decoder(vocab_size: int, **changes: Any) -> DecoderConfig:
    plain = DecoderConfig(
        vocab_size=vocab_size,
        hidden_size=8,
        num_layers=1,
        num_heads=1,
        num_kv_heads=1,
        head_dim=8,
        intermediate_size=16,
        positions=LearnedPositions(512),
        max_length=512,
    )
    return replace(plain, **changes)
