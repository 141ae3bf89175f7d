"""What the laws are tried on: generated media and conversations, small to print and cheap to shrink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st

from mmcore.request import DecodedMedia, MediaInfo

if TYPE_CHECKING:
    from mmcore.testing.subject import Subject


@dataclass(frozen=True, slots=True)
class Picture:
    """Coloured squares of 20 pixels, so that pictures differ in more than noise."""

    width: int
    height: int
    seed: int = 0

    @property
    def info(self) -> MediaInfo:
        return MediaInfo("image", width=self.width, height=self.height)

    def media(self) -> DecodedMedia:
        return DecodedMedia("image", _squares(self.height, self.width, self.seed))

    def given(self) -> Any:
        """As a caller hands it in."""
        return self.media().data


@dataclass(frozen=True, slots=True)
class Clip:
    """A video of ``frames`` pictures, one a second."""

    width: int
    height: int
    frames: int
    seed: int = 0

    @property
    def info(self) -> MediaInfo:
        return MediaInfo(
            "video", width=self.width, height=self.height, frames=self.frames, seconds=float(self.frames)
        )

    def media(self) -> DecodedMedia:
        frames = [_squares(self.height, self.width, self.seed + n) for n in range(self.frames)]
        return DecodedMedia("video", np.stack(frames), times=tuple(map(float, range(self.frames))))

    def given(self) -> Any:
        return self.media().data


@dataclass(frozen=True, slots=True)
class Sound:
    """Two tones, ``samples`` long."""

    samples: int
    rate: int
    seed: int = 0

    @property
    def info(self) -> MediaInfo:
        seconds = self.samples / self.rate
        return MediaInfo("audio", seconds=seconds, sample_rate=self.rate, samples=self.samples)

    def media(self) -> DecodedMedia:
        generator = np.random.default_rng(self.seed)
        time = np.arange(self.samples) / self.rate
        tones = generator.uniform(100, 3000, 2)
        wave = sum(np.sin(2 * np.pi * tone * time) for tone in tones) / 3
        return DecodedMedia("audio", wave.astype(np.float32), sample_rate=self.rate)

    def given(self) -> Any:
        return self.media().data, self.rate


Medium = Picture | Clip | Sound


@dataclass(frozen=True, slots=True)
class Ask:
    """One user message: words and media in order."""

    parts: tuple[str | Medium, ...]

    @property
    def media(self) -> tuple[Medium, ...]:
        return tuple(part for part in self.parts if not isinstance(part, str))

    def messages(self) -> list[dict[str, Any]]:
        """As `LLM.chat` takes them."""
        return [{"role": "user", "content": [_part(part) for part in self.parts]}]


def _part(part: str | Medium) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    modality = part.info.modality
    return {"type": modality, modality: part.given()}


def _squares(height: int, width: int, seed: int) -> np.ndarray:
    small = np.random.default_rng(seed).integers(0, 256, (1 + height // 20, 1 + width // 20, 3), np.uint8)
    return np.ascontiguousarray(small.repeat(20, 0).repeat(20, 1)[:height, :width])


# ------------------------------------------------------------------ strategies


def media(subject: Subject, modalities: Sequence[str] = ()) -> st.SearchStrategy[Medium]:
    """Media of these modalities, or of all that the family takes: within its limits, and small."""
    kinds = modalities or subject.adapter.inputs.modalities
    return st.one_of([_KINDS[kind](subject) for kind in kinds])


def words() -> st.SearchStrategy[str]:
    """Text that begins and ends with a letter: blanks at the ends are a template's own business."""
    return st.text("abc XYZ.?é漢", min_size=1, max_size=20).map(lambda text: f"a{text}z")


def asks(subject: Subject, *, least_media: int = 0, modalities: Sequence[str] = ()) -> st.SearchStrategy[Ask]:
    """Conversations that the family takes: as many media as its limits allow, at most three."""
    most = min(3, subject.max_items)
    shapes = st.lists(st.one_of(words(), media(subject, modalities)), min_size=1, max_size=5)
    if subject.takes_no_words:
        shapes = st.lists(media(subject, modalities), min_size=1, max_size=1)
    fits = shapes.filter(lambda parts: max(least_media, subject.least_items) <= _count(parts) <= most)
    return fits.map(lambda parts: Ask(tuple(parts)))


def _count(parts: Sequence[str | Medium]) -> int:
    return sum(not isinstance(part, str) for part in parts)


def _sizes(subject: Subject, modality: str) -> st.SearchStrategy[tuple[int, int]]:
    limits = subject.adapter.inputs.limits.get(modality)
    least = max(1, limits.min_side if limits else 1)
    most = min(limits.max_side if limits and limits.max_side else 160, max(160, least))
    aspect = limits.max_aspect if limits and limits.max_aspect else 8.0
    sizes = st.tuples(st.integers(least, most), st.integers(least, most))
    return sizes.filter(lambda size: max(size) <= aspect * min(size))


def _pictures(subject: Subject) -> st.SearchStrategy[Medium]:
    return st.builds(
        lambda size, seed: Picture(size[0], size[1], seed), _sizes(subject, "image"), st.integers(0, 50)
    )


def _clips(subject: Subject) -> st.SearchStrategy[Medium]:
    limits = subject.adapter.inputs.limits.get("video")
    most = min(6, limits.max_frames if limits and limits.max_frames else 6)
    return st.builds(
        lambda size, frames, seed: Clip(size[0], size[1], frames, seed),
        _sizes(subject, "video"),
        st.integers(1, most),
        st.integers(0, 50),
    )


def _sounds(subject: Subject) -> st.SearchStrategy[Medium]:
    limits = subject.adapter.inputs.limits.get("audio")
    least = max(1, limits.min_samples if limits else 1)
    rates = st.sampled_from([8000, 16000, 22050])
    return st.builds(Sound, st.integers(least, least + 40_000), rates, st.integers(0, 50))


_KINDS: Mapping[str, Any] = {"image": _pictures, "video": _clips, "audio": _sounds}
