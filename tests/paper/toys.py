"""What the paper adapters share: a tokenizer of characters, a tower of hashes, the parts that do not differ.

No torch anywhere. A toy row is an int that depends on every byte of its item and on its own number.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from mmcore.adapter import Adapter, CheckpointFiles, DecodingDefaults, MediaLimits, MediaOps, Placeholder
from mmcore.decoder_config import DecoderConfig, LearnedPositions
from mmcore.errors import UnsupportedOptionError
from mmcore.inputs.decoding import PlainDecoding
from mmcore.inputs.template import PlainTemplate
from mmcore.request import DecodedMedia, EncodeCost, EncoderInput, ItemPlan, MediaInfo, Modality, TextSegment

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

    def encode_segments(self, segments: Sequence[TextSegment]) -> tuple[int, ...]:
        return tuple(i for s in segments for i in self.encode(s.text, special_tokens=s.trusted))

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

    def digest(self) -> bytes:
        return b"toy checkpoint"

    @property
    def tensor_names(self) -> tuple[str, ...]:
        return ()

    @property
    def tokenizer(self) -> CharTokenizer:
        return CharTokenizer(self.specials)


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
    """A stop rule: keeps the logits it hears, and ends a sequence by them."""

    ends: Callable[[Sequence[float]], bool]
    logits: list[float] = field(default_factory=list)

    def observe(self, token_id: int, logit: float, logprob: float) -> bool:
        self.logits.append(logit)
        return self.ends(self.logits)


def token(files: CheckpointFiles, text: str) -> int:
    found = files.tokenizer.token_id(text)
    assert found is not None, text
    return found


def stops(files: CheckpointFiles) -> DecodingDefaults:
    return DecodingDefaults(stop_ids=(token(files, "</s>"),))


def toy_decoder(files: CheckpointFiles, **changes: Any) -> DecoderConfig:
    plain = DecoderConfig(
        vocab_size=files.tokenizer.vocab_size,
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


def toy_adapter(
    name: str, files: CheckpointFiles, inputs: ToyInputs, slots: Mapping[Modality, str], **parts: Any
) -> Adapter:
    """A whole adapter; ``parts`` are those that this family does not share."""
    placeholders = tuple(Placeholder(modality, text, token(files, text)) for modality, text in slots.items())
    plain = Adapter(
        name=name,
        prompt=PlainTemplate(placeholders),
        inputs=inputs,
        encoder=ToyEncoder(name),
        decoding=PlainDecoding(stops(files)),
        decoder=toy_decoder(files),
        placeholders=placeholders,
        weights=(),
    )
    return replace(plain, **parts)
