"""A medium as the caller gave it, opened: its source, what its header says, its content digest."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from mmcore.config import MediaPolicy
from mmcore.errors import MediaFormatError, MediaLimitError, UnknownModalityError, UnsupportedOptionError
from mmcore.inputs.clip import KINDS, clip, clip_info, cut_clip
from mmcore.inputs.container import format_name
from mmcore.inputs.fetch import MediaFetcher
from mmcore.inputs.hashing import content_digest
from mmcore.inputs.picture import array_picture, decode_picture, picture_info, pil_picture
from mmcore.inputs.sound import (
    array_sound,
    array_sound_info,
    as_array,
    check_samples,
    cut_sound,
    cut_wav,
    wav_info,
)
from mmcore.inputs.unpack import unpack_sound
from mmcore.inputs.video import decode_video, video_info
from mmcore.request import (
    ArraySource,
    DecodedMedia,
    EncodedSource,
    ItemSource,
    MediaInfo,
    Modality,
    PreparedItem,
    ReadyRows,
    SourceSpec,
)


@dataclass(frozen=True, eq=False, slots=True)
class OpenedMedia:
    """``digest`` is the content's own, before options, UUID and salt."""

    source: ItemSource
    info: MediaInfo
    digest: bytes

    @property
    def size(self) -> int:
        """Bytes that its source holds."""
        if isinstance(self.source, EncodedSource):
            return len(self.source.data)
        return self.source.media.data.nbytes if isinstance(self.source, ArraySource) else 0


def open_media(modality: Modality, value: Any, fetcher: MediaFetcher, sample_rate: int = 0) -> OpenedMedia:
    """Fetch, read the header, check the policy's budgets; of files only compressed sound is decoded.

    That is kept as mono at ``sample_rate`` (0: its own). PIL images and arrays are copied here, normalised.
    Raises `MediaError`s.
    """
    if modality not in _KINDS:
        raise UnknownModalityError(f"{modality!r} cannot be decoded here; known: {', '.join(_KINDS)}")
    if isinstance(value, ReadyRows):
        raise UnsupportedOptionError("embeddings as media are not built yet; give the media themselves")
    policy = fetcher.policy
    if isinstance(value, str | os.PathLike):
        value = fetcher.read(value)
    elif hasattr(value, "read"):
        value = fetcher.read_file(value)
    if isinstance(value, bytes | bytearray | memoryview):
        fetcher.check_size(len(value))
        return _open_file(modality, bytes(value), policy, sample_rate)
    media = _from_memory(modality, value, policy)
    if modality == "audio":
        check_samples(len(media.data), policy)
    source = ArraySource(media)
    return OpenedMedia(source, _source_info(source, modality), content_digest(source))


def is_at_hand(value: Any) -> bool:
    """Whether opening it neither waits for bytes nor decodes any."""
    if isinstance(value, Image.Image):
        return getattr(value, "fp", None) is None  # a file that Pillow has not read yet
    return value is None or isinstance(value, np.ndarray | tuple)


def _open_file(modality: Modality, data: bytes, policy: MediaPolicy, sample_rate: int) -> OpenedMedia:
    source: ItemSource = EncodedSource(data)
    digest = content_digest(source)
    if not data:
        raise MediaFormatError("the file is empty (0 bytes)")
    if modality == "image":
        info = picture_info(data)
        check_pixels(info.width, info.height, policy)
    elif modality == "video":
        info = video_info(data, policy)
    elif format_name(data) == "WAV":
        info, channels = wav_info(data)
        check_samples(info.samples * channels, policy)
    else:
        source = ArraySource(unpack_sound(data, policy, sample_rate))
        info = _source_info(source, modality)
    return OpenedMedia(source, info, digest)


def reopen(item: PreparedItem) -> OpenedMedia:
    """The medium of an item that was opened before, under whatever policy let it in."""
    return OpenedMedia(item.source, _source_info(item.source, item.modality), item.content_digest)


def decode(source: ItemSource, modality: Modality, spec: SourceSpec) -> DecodedMedia:
    """Normalised media, as the plan wants them. Raises `MediaFormatError`."""
    if isinstance(source, ReadyRows):
        raise UnsupportedOptionError("embeddings as media are not built yet; give the media themselves")
    if modality == "image":
        if spec.mode != "RGB":
            raise UnsupportedOptionError(f"pictures in mode {spec.mode!r} are not built yet; plan for RGB")
        return decode_picture(source.data) if isinstance(source, EncodedSource) else source.media
    cut_file, cut_array = (decode_video, cut_clip) if modality == "video" else (cut_wav, cut_sound)
    return cut_file(source.data, spec) if isinstance(source, EncodedSource) else cut_array(source.media, spec)


def check_pixels(width: int, height: int, policy: MediaPolicy) -> None:
    if width * height > policy.max_pixels:
        raise MediaLimitError(
            f"a picture of {width}x{height} pixels is over max_pixels {policy.max_pixels} of the media policy"
        )


def _source_info(source: ItemSource, modality: Modality) -> MediaInfo:
    if isinstance(source, EncodedSource):
        if modality == "video":
            return video_info(source.data)
        return picture_info(source.data) if modality == "image" else wav_info(source.data)[0]
    if isinstance(source, ReadyRows):
        raise UnsupportedOptionError("embeddings as media are not built yet; give the media themselves")
    if modality == "audio":
        return array_sound_info(source.media)
    if modality == "video":
        return clip_info(source.media)
    height, width, _ = source.media.data.shape
    return MediaInfo("image", width=width, height=height)


def _from_memory(modality: Modality, value: Any, policy: MediaPolicy) -> DecodedMedia:
    if modality == "image" and isinstance(value, Image.Image):
        check_pixels(*value.size, policy)
        return pil_picture(value)
    if modality == "image" and isinstance(value, np.ndarray):
        if value.ndim >= 2:
            check_pixels(value.shape[1], value.shape[0], policy)
        return array_picture(value)
    if modality == "audio" and isinstance(value, tuple) and len(value) == 2:
        samples = as_array(value[0])
        check_samples(samples.size, policy)
        return array_sound(samples, value[1])
    if modality == "video":
        return clip(value, policy)
    raise MediaFormatError(f"a {type(value).__name__} is no {modality}; give {_KINDS[modality]}")


_KINDS = {
    "image": "a PIL image, a path, a URL, a file object, the bytes of a file, or a numpy array",
    "audio": "a path, a URL, a file object, the bytes of a file, or (samples, rate)",
    "video": KINDS,
}
