"""A medium as the caller gave it, opened: its source, what its header says, its content digest."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from mmcore.config import MediaPolicy
from mmcore.errors import MediaFormatError, MediaLimitError, UnknownModalityError, UnsupportedOptionError
from mmcore.inputs.fetch import MediaFetcher
from mmcore.inputs.hashing import content_digest
from mmcore.inputs.picture import array_picture, decode_picture, picture_info, pil_picture
from mmcore.inputs.sound import array_sound, array_sound_info, as_array, cut_sound, decode_sound, sound_info
from mmcore.request import (
    ArraySource,
    DecodedMedia,
    EncodedSource,
    ItemSource,
    MediaInfo,
    Modality,
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


def open_media(modality: Modality, value: Any, fetcher: MediaFetcher) -> OpenedMedia:
    """Fetch, read the header, check the policy's budgets; nothing is decoded that is a file.

    PIL images and arrays are copied here, normalised. Raises `MediaError`s.
    """
    if modality not in ("image", "audio"):
        raise UnknownModalityError(f"{modality!r} cannot be decoded here; known: image, audio")
    if isinstance(value, ReadyRows):
        raise UnsupportedOptionError("embeddings as media are not built yet; give the media themselves")
    policy = fetcher.policy
    if isinstance(value, str | os.PathLike):
        value = fetcher.read(value)
    if isinstance(value, bytes | bytearray | memoryview):
        fetcher.check_size(len(value))
        data = bytes(value)
        source: ItemSource = EncodedSource(data)
        info = read_info(modality, data, policy)
    else:
        media = _from_memory(modality, value, policy)
        source, info = ArraySource(media), _array_info(media)
        if modality == "audio":
            _check_samples(info.samples, policy)
    return OpenedMedia(source, info, content_digest(source))


def reopen(source: ItemSource, modality: Modality) -> OpenedMedia:
    """A source that was opened before, under whatever policy let it in."""
    if isinstance(source, EncodedSource):
        info = picture_info(source.data) if modality == "image" else sound_info(source.data)[0]
        return OpenedMedia(source, info, content_digest(source))
    if isinstance(source, ArraySource):
        return OpenedMedia(source, _array_info(source.media), content_digest(source))
    raise UnsupportedOptionError("embeddings as media are not built yet; give the media themselves")


def read_info(modality: Modality, data: bytes, policy: MediaPolicy) -> MediaInfo:
    """What a file's header says, within the budgets of the policy."""
    if not data:
        raise MediaFormatError("the file is empty (0 bytes)")
    if modality == "image":
        info = picture_info(data)
        check_pixels(info.width, info.height, policy)
        return info
    info, channels = sound_info(data)
    _check_samples(info.samples * channels, policy)
    return info


def decode(source: ItemSource, modality: Modality, spec: SourceSpec) -> DecodedMedia:
    """Normalised media, as the plan wants them. Raises `MediaFormatError`."""
    if isinstance(source, ReadyRows):
        raise UnsupportedOptionError("embeddings as media are not built yet; give the media themselves")
    if modality == "image":
        if spec.mode != "RGB":
            raise UnsupportedOptionError(f"pictures in mode {spec.mode!r} are not built yet; plan for RGB")
        return decode_picture(source.data) if isinstance(source, EncodedSource) else source.media
    return cut_sound(decode_sound(source.data) if isinstance(source, EncodedSource) else source.media, spec)


def check_pixels(width: int, height: int, policy: MediaPolicy) -> None:
    if width * height > policy.max_pixels:
        raise MediaLimitError(
            f"a picture of {width}x{height} pixels is over max_pixels {policy.max_pixels} of the media policy"
        )


def _check_samples(count: int, policy: MediaPolicy) -> None:
    if count > policy.max_samples:
        raise MediaLimitError(f"{count} samples x channels are over max_samples {policy.max_samples}")


def _array_info(media: DecodedMedia) -> MediaInfo:
    if media.modality == "audio":
        return array_sound_info(media)
    height, width, _ = media.data.shape
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
        _check_samples(samples.size, policy)
        return array_sound(samples, value[1])
    kinds = {
        "image": "a PIL image, a path, a URL, the bytes of a JPEG or PNG file, or a numpy array",
        "audio": "a path, a URL, the bytes of a WAV file, or (samples, rate)",
    }
    raise MediaFormatError(f"a {type(value).__name__} is no {modality}; give {kinds[modality]}")
