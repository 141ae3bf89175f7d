"""The contract between the core and a model family (api_version 1).

An `Adapter` is four parts (prompt template, input processor, encoder, decoding) plus data about the decoder
and the weights. The parts are one object because they must agree on one number: rows per item. Importing
this module imports neither numpy nor torch, and neither may a plugin's manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from mmcore.decoder_config import DecoderConfig
from mmcore.decoding import Decoding as Decoding
from mmcore.decoding import DecodingDefaults as DecodingDefaults
from mmcore.decoding import FollowUp as FollowUp
from mmcore.decoding import Generation as Generation
from mmcore.decoding import LogitsEdit as LogitsEdit
from mmcore.decoding import LogitsRule as LogitsRule
from mmcore.decoding import StopRule as StopRule
from mmcore.manifest import API_VERSION as API_VERSION
from mmcore.manifest import OLDEST_API_VERSION as OLDEST_API_VERSION
from mmcore.manifest import AdapterInfo as AdapterInfo
from mmcore.manifest import BackendInfo as BackendInfo
from mmcore.request import (
    DecodedMedia,
    EncodeCost,
    EncoderInput,
    ItemPlan,
    MediaInfo,
    Message,
    Modality,
    PlaceholderRange,
    Segment,
    SourceSpec,
    TextSegment,
    TokenPositions,
)

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

# ------------------------------------------------------------------ what the core hands to an adapter


class Tokenizer(Protocol):
    """A checkpoint's tokenizer. Text is untrusted unless it came from a template."""

    @property
    def vocab_size(self) -> int: ...
    def encode(self, text: str, *, special_tokens: bool) -> tuple[int, ...]:
        """Token ids, nothing added. With ``special_tokens`` False a typed special token is plain text."""
        ...

    def encode_segments(self, segments: Sequence[TextSegment]) -> tuple[int, ...]:
        """Adjacent text as one string, so that tokens form across it; trusted parts' special tokens count."""
        ...

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str: ...
    def token_id(self, token: str) -> int | None:
        """Id of one token by its exact text, None if the checkpoint has no such token."""
        ...


class CheckpointFiles(Protocol):
    """The small files of a checkpoint, read when asked for."""

    def json(self, name: str) -> Mapping[str, Any]:
        """A JSON file, `{}` where it is absent. Raises `CheckpointError` where it is not JSON."""
        ...

    def text(self, name: str) -> str | None: ...
    @property
    def tensor_names(self) -> Collection[str]:
        """What the weight files hold, from their headers; empty where they cannot be read: loading tells."""
        ...

    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def chat_template(self) -> str | None:
        """The checkpoint's own Jinja source, wherever the hub layout keeps it."""
        ...


class MediaOps(Protocol):
    """The core's media operations; a plugin's `preprocess` calls nothing else.

    Pictures are arrays [..., height, width, channels].
    """

    def resize(
        self,
        image: np.ndarray,
        height: int,
        width: int,
        *,
        resample: str = "bicubic",
        reducing_gap: float | None = None,
    ) -> np.ndarray:
        """uint8 in, uint8 out, antialiased, equal to Pillow's ``resize`` on this backend.

        With a ``reducing_gap`` what shrinks a lot is first averaged in squares, down to that many times its
        size.
        """
        ...

    def grey(self, image: np.ndarray) -> np.ndarray:
        """uint8 [..., 3] to uint8 [...]: luminance (ITU-R 601-2) as Pillow's mode L rounds it."""
        ...

    def crop(self, image: np.ndarray, top: int, left: int, height: int, width: int) -> np.ndarray: ...
    def pad(
        self, image: np.ndarray, height: int, width: int, *, top: int, left: int, value: int
    ) -> np.ndarray:
        """``image`` at (top, left) of a field of ``value`` with that height and width."""
        ...

    def normalize(self, image: np.ndarray, mean: Sequence[float], std: Sequence[float]) -> np.ndarray:
        """uint8 to float32 ``(image / 255 - mean) / std``."""
        ...

    def patchify(self, frames: np.ndarray, *, patch: int, temporal: int = 1, merge: int = 1) -> np.ndarray:
        """float32 [frames, height, width, 3] to [patches, 3 * temporal * patch * patch].

        Patches of one ``merge`` x ``merge`` window are neighbours; a vector's order is channel, time, y, x.
        """
        ...

    def log_mel(self, samples: np.ndarray, *, mels: int, fft: int, hop: int, sample_rate: int) -> np.ndarray:
        """float32 [samples] to float32 [mels, samples // hop], the spectrogram of Radford et al. 2022."""
        ...


# ------------------------------------------------------------------ part 1: prompt template


class PromptTemplate(Protocol):
    """Messages or raw text to segments. `mmcore.inputs.template.JinjaTemplate` serves most families."""

    def render(self, messages: Sequence[Message]) -> tuple[Segment, ...]:
        """The prompt up to where the model answers. User text stays untrusted. Raises `PromptError`."""
        ...

    def parse(self, prompt: str, media: Sequence[Modality]) -> tuple[Segment, ...]:
        """A raw prompt, trusted, for these media in order.

        With placeholders their count equals the media (else `PlaceholderMismatchError`); with none and no
        turn marker it is one user message, the media first, through `render`.
        """
        ...


# ------------------------------------------------------------------ part 2: input processor


@dataclass(frozen=True, slots=True)
class MediaLimits:
    """What one item may be, checked on the header. 0 means no limit of its own."""

    min_side: int = 1
    max_side: int = 0
    max_aspect: float = 0.0
    max_frames: int = 0
    min_samples: int = 0
    max_seconds: float = 0.0
    sample_rate: int = 0
    """Hz that the family plans with: compressed sound, decoded before it is measured, is kept at it."""
    max_items: int = 0
    """Items of all modalities in one prompt."""


@runtime_checkable
class InputProcessor(Protocol):
    """A frozen dataclass. Its fields are part of the processor key, so each is hashable plain data; fields
    with ``compare=False`` (a tokenizer) stay out of the key."""

    @property
    def modalities(self) -> tuple[Modality, ...]: ...
    @property
    def limits(self) -> Mapping[Modality, MediaLimits]: ...
    def measure(self, infos: Sequence[MediaInfo], options: Sequence[Any]) -> tuple[ItemPlan, ...]:
        """All items of a prompt at once, from headers alone.

        ``options[i]`` is this processor with item i's per-request options applied, of the same class.
        """
        ...

    def preprocess(self, media: DecodedMedia, plan: ItemPlan, ops: MediaOps) -> EncoderInput:
        """Pure, deterministic, thread- and process-safe."""
        ...

    def with_options(self, options: Mapping[str, Any]) -> InputProcessor:
        """This processor with validated per-request options. Raises `UnsupportedOptionError` by name."""
        ...


# ------------------------------------------------------------------ part 3: encoder


@runtime_checkable
class Encoder(Protocol):
    """Builds the tower and packs its inputs. Frozen; its fields are part of the encoder key."""

    def build(self) -> nn.Module:
        """Parameters on the current default device and dtype, uninitialised.

        ``forward(**tensors) -> [sum of rows, width]``, on the device only, without a host synchronisation.
        """
        ...

    def collate(self, inputs: Sequence[EncoderInput], plans: Sequence[ItemPlan]) -> Mapping[str, np.ndarray]:
        """Pack items for one `forward`, on the host. Rows come out in item order."""
        ...

    def cost(self, plan: ItemPlan) -> EncodeCost:
        """The work of one item; leave ``output_bytes`` to the core, which knows the tower's dtype."""
        ...


class ContextStage(Protocol):
    """Between encoder rows and cross-attention: item rows and text ids become cross states.

    In such a family the prompt's text goes here, and the decoder starts with `Decoding.prefix` alone.
    """

    def length(self, plans: Sequence[ItemPlan], text_ids: Sequence[int]) -> int:
        """Number of cross states; may be asked without items. Raises `ContextLengthError`."""
        ...

    def work(self, length: int) -> int:
        """Floating point operations that make ``length`` states; a step counts them with its encoder work."""
        ...

    def build(self) -> nn.Module:
        """``forward(rows [rows, width], text_ids [n]) -> [length, cross_width]``."""
        ...


class Fusion(Enum):
    """How encoder rows join the decoder."""

    INTERLEAVED = "interleaved"
    """Rows take placeholder positions of the decoder's sequence."""
    CROSS_ATTENTION = "cross_attention"
    """Rows become paged cross-KV; the decoder prompt is a sequence of its own."""


# ------------------------------------------------------------------ weights


@dataclass(frozen=True, slots=True)
class WeightRule:
    """Checkpoint tensors ``source`` fill the parameter ``target``.

    ``{}`` stands for a run of digits, the same ones in order on both sides. ``shard`` names the part of a
    fused parameter (``q``, ``k``, ``v``; ``gate``, ``up``). ``reshape`` lets a convolution fill a linear.
    Targets start with ``decoder.``, ``encoder.`` or ``context.``.
    """

    source: str
    target: str
    shard: str = ""
    reshape: bool = False


@dataclass(frozen=True, slots=True)
class IgnoredWeight:
    """Checkpoint tensors that are left out, and why.

    ``same_as`` names a parameter whose values such a tensor only repeats: loading makes sure of it.
    """

    source: str
    reason: str
    same_as: str = ""


@dataclass(frozen=True, slots=True)
class SharedWeight:
    """Parameter ``target`` is parameter ``source``: one memory, filled once, by the rule of ``source``."""

    target: str
    source: str


# ------------------------------------------------------------------ the adapter


@dataclass(frozen=True, slots=True)
class Placeholder:
    """The text that stands for one medium in a raw prompt, and the id its rows carry in token lists.

    ``token_id`` may lie beyond the embedding: it is never looked up.
    """

    modality: Modality
    text: str
    token_id: int


@dataclass(frozen=True, slots=True)
class Layout:
    """A whole prompt, as `Adapter.positions` sees it: ``plans[r.item]`` belongs to range ``r``."""

    num_tokens: int
    ranges: tuple[PlaceholderRange, ...]
    plans: tuple[ItemPlan, ...]
    modalities: tuple[Modality, ...]


Survey = Callable[[MediaInfo, Callable[[SourceSpec], DecodedMedia], MediaOps], Mapping[str, Any]]
"""Looks through a medium once, before it is planned: ``survey(info, read, ops)`` gives processor options that
no part can tell alone (how loud the loudest moment is). ``read`` decodes a part."""


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """One family's part for one checkpoint, made by the target's ``from_config(config, files)``."""

    name: str
    prompt: PromptTemplate
    inputs: InputProcessor
    encoder: Encoder
    decoding: Decoding
    decoder: DecoderConfig
    placeholders: tuple[Placeholder, ...]
    weights: tuple[WeightRule, ...]
    ignored: tuple[IgnoredWeight, ...] = ()
    shared: tuple[SharedWeight, ...] = ()
    fusion: Fusion = Fusion.INTERLEAVED
    context: ContextStage | None = None
    positions: Callable[[Layout], TokenPositions] | None = None
    """Only where positions are not 0..n-1."""
    survey: Survey | None = None
    """Only where an item's options depend on all of a medium that is decoded part by part."""
    transcribes: bool = False
    """`mmcore.llm.LLM.transcribe` takes it: see `mmcore.transcript`."""
    dtypes: tuple[str, ...] = ("bfloat16", "float16", "float32")
    """Sound dtypes, best first."""

    def placeholder(self, modality: Modality) -> Placeholder | None:
        return next((p for p in self.placeholders if p.modality == modality), None)


class AdapterFactory(Protocol):
    """What `AdapterInfo.target` names: a class or object with this method."""

    def from_config(self, config: Mapping[str, Any], files: CheckpointFiles) -> Adapter:
        """Raises `CheckpointError` for a config it does not serve."""
        ...


class AdapterExtension(Protocol):
    """What the target of an `AdapterInfo` with ``extends`` names."""

    def from_base(self, base: Adapter, config: Mapping[str, Any], files: CheckpointFiles) -> Adapter: ...
