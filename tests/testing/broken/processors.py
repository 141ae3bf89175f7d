"""Input processors that measure, option, cut and remember badly."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from mmcore_qwen2vl.processor import VisionProcessor
from mmcore_whisper.adapter import WhisperInputs
from testing.broken.record import Broken, worse_part

from mmcore.adapter import Adapter, MediaLimits, MediaOps
from mmcore.request import DecodedMedia, EncoderInput, ItemPlan, MediaInfo, Rows, Tokens

SCRATCH = np.empty(1 << 24, np.uint8)


class Thin(VisionProcessor):
    """Thin pictures divide by zero."""

    def _plan(self, info: MediaInfo) -> ItemPlan:
        max(info.width, info.height) // (40 * min(info.width, info.height) // max(info.width, info.height))
        return super()._plan(info)


class Dots(VisionProcessor):
    """A picture smaller than a patch has no rows."""

    def _plan(self, info: MediaInfo) -> ItemPlan:
        plan = super()._plan(info)
        return replace(plan, pieces=(), rows=0) if max(info.width, info.height) < self.patch else plan


class Permissive(VisionProcessor):
    """Options it does not know are left unread."""

    def with_options(self, options: Mapping[str, Any]) -> VisionProcessor:
        return super().with_options({k: v for k, v in options.items() if k in ("fps", "max_pixels")})


class Crashing(VisionProcessor):
    """Options are used before they are looked at."""

    def with_options(self, options: Mapping[str, Any]) -> VisionProcessor:
        if "no_such_option" in options:
            return super().with_options(options)
        return super().with_options({k: v if k == "frames" else v + 0 for k, v in options.items()})


class OneTooMany(VisionProcessor):
    """A placeholder for the end token of each picture, which the tower does not give."""

    def _plan(self, info: MediaInfo) -> ItemPlan:
        plan = super()._plan(info)
        return replace(plan, pieces=(Rows(plan.rows + 1),))


class PlaceholderBetween(VisionProcessor):
    """Lines are told apart by the very id that stands for rows."""

    placeholder = 262

    def _plan(self, info: MediaInfo) -> ItemPlan:
        plan = super()._plan(info)
        return replace(plan, pieces=(*plan.pieces, Tokens((self.placeholder,))))


class InPlace(VisionProcessor):
    """Works in the caller's own pixels."""

    def preprocess(self, media: DecodedMedia, plan: ItemPlan, ops: MediaOps) -> EncoderInput:
        np.subtract(255, media.data, out=media.data)
        return super().preprocess(media, plan, ops)


def scratch(frames: np.ndarray) -> np.ndarray:
    """``frames`` in the one buffer that there is."""
    shared = SCRATCH[: frames.size].reshape(frames.shape)
    shared[:] = frames
    return shared


class Reused(VisionProcessor):
    """All items share one buffer."""

    def preprocess(self, media: DecodedMedia, plan: ItemPlan, ops: MediaOps) -> EncoderInput:
        return EncoderInput({"frames": scratch(super().preprocess(media, plan, ops).arrays["frames"])})


class Racing(VisionProcessor):
    """A scratch buffer that is copied only after a while: two threads meet in it."""

    def preprocess(self, media: DecodedMedia, plan: ItemPlan, ops: MediaOps) -> EncoderInput:
        shared = scratch(super().preprocess(media, plan, ops).arrays["frames"])
        time.sleep(0.002)
        return EncoderInput({"frames": shared.copy()})


CURRENT: dict[str, int] = {}


class Whose(VisionProcessor):
    """Keeps the item it works on in a module, as a library's global state does."""

    def preprocess(self, media: DecodedMedia, plan: ItemPlan, ops: MediaOps) -> EncoderInput:
        CURRENT["shift"] = int(media.data.sum()) % 251
        time.sleep(0.002)
        frames = super().preprocess(media, plan, ops).arrays["frames"]
        return EncoderInput({"frames": frames ^ np.uint8(CURRENT["shift"])})


class Hashing(VisionProcessor):
    """Dithers by `hash` of a string, which each process salts."""

    def preprocess(self, media: DecodedMedia, plan: ItemPlan, ops: MediaOps) -> EncoderInput:
        frames = super().preprocess(media, plan, ops).arrays["frames"]
        noise = np.random.default_rng(hash("dither") % 2**32).integers(0, 9, frames.shape, np.uint8)
        return EncoderInput({"frames": frames ^ noise})


TABLE: dict[str, int] = {}


class HereOnly(VisionProcessor):
    """A table that was filled in the process that read the checkpoint."""

    def preprocess(self, media: DecodedMedia, plan: ItemPlan, ops: MediaOps) -> EncoderInput:
        frames = super().preprocess(media, plan, ops).arrays["frames"]
        return EncoderInput({"frames": frames ^ np.uint8(TABLE.get("levels", 0))})


def here_only(adapter: Adapter) -> Adapter:
    TABLE["levels"] = 16
    return worse_part("inputs", HereOnly)(adapter)


class HalfPrecision(WhisperInputs):
    """Computes its spectrogram in float16."""

    def preprocess(self, media: DecodedMedia, plan: ItemPlan, ops: MediaOps) -> EncoderInput:
        features = super().preprocess(media, plan, ops).arrays["features"]
        return EncoderInput({"features": features.astype(np.float16).astype(np.float32)})


class Floored(WhisperInputs):
    """Cuts at 6 decades below the loudest instead of 8."""

    def preprocess(self, media: DecodedMedia, plan: ItemPlan, ops: MediaOps) -> EncoderInput:
        features = super().preprocess(media, plan, ops).arrays["features"]
        return EncoderInput({"features": np.maximum(features, features.max() - np.float32(1.5))})


class Wider(VisionProcessor):
    """Says the tower's width for the decoder's."""

    def _plan(self, info: MediaInfo) -> ItemPlan:
        plan = super()._plan(info)
        return replace(plan, width=plan.width + 1)


class Clocked(VisionProcessor):
    """A plan holds when it was made."""

    def _plan(self, info: MediaInfo) -> ItemPlan:
        return replace(super()._plan(info), times=(time.monotonic(),))


class Numbered(VisionProcessor):
    """A plan holds its item's number in the prompt."""

    def measure(self, infos: Sequence[MediaInfo], options: Sequence[Any]) -> tuple[ItemPlan, ...]:
        plans = super().measure(infos, options)
        return tuple(replace(plan, times=(float(n),)) for n, plan in enumerate(plans))


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen(VisionProcessor):
    """A setting that is in no comparison, hence in no key."""

    levels: int = field(default=1, compare=False)

    def preprocess(self, media: DecodedMedia, plan: ItemPlan, ops: MediaOps) -> EncoderInput:
        frames = VisionProcessor.preprocess(self, media, plan, ops).arrays["frames"]
        return EncoderInput({"frames": frames // self.levels})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limited(VisionProcessor):
    """Its limits are a field: who raises one loses all that is cached."""

    own: MediaLimits = field(default_factory=lambda: MediaLimits(max_aspect=200.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked(VisionProcessor):
    """Holds a lock, which no process can be sent."""

    lock: Any = field(default_factory=threading.Lock, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Misread(VisionProcessor):
    """Colours in the order of another library."""

    def preprocess(self, media: DecodedMedia, plan: ItemPlan, ops: MediaOps) -> EncoderInput:
        turned = replace(media, data=np.ascontiguousarray(media.data[..., ::-1]))
        return VisionProcessor.preprocess(self, turned, plan, ops)


FAULTS = (
    Broken("any_header_is_measured_or_refused", worse_part("inputs", Thin), hidden=True),
    Broken("any_header_is_measured_or_refused", worse_part("inputs", Dots), hidden=True),
    Broken("strange_options_are_refused", worse_part("inputs", Permissive), hidden=True),
    Broken("strange_options_are_refused", worse_part("inputs", Crashing), hidden=True),
    Broken("pieces_place_each_row_once", worse_part("inputs", OneTooMany)),
    Broken("pieces_place_each_row_once", worse_part("inputs", PlaceholderBetween)),
    Broken("adapter_and_requests_pickle", worse_part("inputs", Locked), hidden=True),
    Broken("preprocess_is_pure", worse_part("inputs", InPlace)),
    Broken("preprocess_is_pure", worse_part("inputs", Reused)),
    Broken("preprocess_is_the_same_in_threads", worse_part("inputs", Racing), hidden=True),
    Broken("preprocess_is_the_same_in_threads", worse_part("inputs", Whose)),
    Broken("preprocess_is_the_same_in_a_process", worse_part("inputs", Hashing)),
    Broken("preprocess_is_the_same_in_a_process", here_only, name="HereOnly"),
    Broken("preprocess_equals_the_published_processor", worse_part("inputs", HalfPrecision), family="sounds"),
    Broken("preprocess_equals_the_published_processor", worse_part("inputs", Floored), family="sounds"),
    Broken("measure_counts_rows", worse_part("inputs", Wider)),
    Broken("a_key_is_the_content_s_own", worse_part("inputs", Clocked), hidden=True),
    Broken("a_key_is_the_content_s_own", worse_part("inputs", Numbered), hidden=True),
    Broken("what_changes_an_item_is_in_its_key", worse_part("inputs", Unseen), hidden=True),
    Broken("other_parts_leave_keys_alone", worse_part("inputs", Limited), hidden=True),
    Broken("answers_equal_the_reference", worse_part("inputs", Misread)),
)
