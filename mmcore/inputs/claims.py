"""What a sound or video file claims, held against the bytes that are there, before FFmpeg believes it.

FFmpeg makes a table entry for each sample that an MP4 says it has, and unpacks compressed tags of an MP3 to
the size they name: a few bytes would become gigabytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from mmcore.errors import MediaFormatError, MediaLimitError

MAX_ENTRIES = 4 << 20
"""Samples of an MP4, times its edits: 24 hours of AAC, 38 of video at 30 frames a second."""
_MAX_BOXES = 1 << 18
_PARENTS = frozenset((b"moov", b"trak", b"mdia", b"minf", b"stbl", b"edts", b"moof", b"traf", b"mvex"))
_SIZES_PER_SAMPLE = {b"stsz": 8, b"stz2": 8, b"trun": 4}
"""Tables with one entry a sample, and where in the box's body the count stands."""
_RUNS = (b"stts", b"ctts")
"""Tables of (count, value): FFmpeg unrolls the counts."""


def checked(name: str, data: bytes) -> bytes:
    """The file, without what decides no sample. Raises `MediaFormatError`, `MediaLimitError`."""
    try:
        return {
            "FLAC": _bare_flac,
            "MP3": _bare_mp3,
            "MP4 or M4A": _checked_mp4,
            "WebM or Matroska": _checked_matroska,
            "Ogg": _checked_ogg,
        }[name](data)
    except (struct.error, IndexError):
        raise MediaFormatError(f"the {name} ends inside its header: it is truncated") from None


def _truncated(name: str) -> MediaFormatError:
    return MediaFormatError(f"the {name} ends before the size that its header promises: it is truncated")


def _bare_flac(data: bytes) -> bytes:
    """With its stream header as the only block of metadata (no pictures, no tags)."""
    position, last = 4, False
    while not last:
        last = bool(data[position] & 0x80)
        position += 4 + int.from_bytes(data[position + 1 : position + 4], "big")
    if data[4] & 0x7F or position > len(data):
        raise MediaFormatError("the FLAC does not start with its stream header, or ends inside it")
    return b"fLaC\x80" + data[5:42] + data[position:]


def _bare_mp3(data: bytes) -> bytes:
    """Without tags before its frames."""
    while data[:3] == b"ID3":
        size = sum((data[6 + i] & 0x7F) << 7 * (3 - i) for i in range(4))
        if 10 + size >= len(data):
            raise _truncated("MP3")
        data = data[10 + size :]
    return data


def _checked_ogg(data: bytes) -> bytes:
    """The last page is whole."""
    page = data.rfind(b"OggS")
    segments = data[page + 27 : page + 27 + data[page + 26]]
    if page + 27 + data[page + 26] + sum(segments) > len(data):
        raise _truncated("Ogg")
    return data


def _checked_matroska(data: bytes) -> bytes:
    """The segment is whole, where its size is written (a recorder that streams leaves it open)."""
    size, start = _ebml_size(data, 4)
    segment = start + (size or 0)
    if data[segment : segment + 4] != b"\x18\x53\x80\x67":
        raise MediaFormatError("the WebM or Matroska has no segment after its header")
    size, start = _ebml_size(data, segment + 4)
    if size is not None and start + size > len(data):
        raise _truncated("WebM or Matroska")
    return data


def _ebml_size(data: bytes, position: int) -> tuple[int | None, int]:
    """A length (None: left open) and where it ends."""
    width = 9 - data[position].bit_length()
    value = int.from_bytes(data[position : position + width], "big") & (1 << 7 * width) - 1
    if position + width > len(data):
        raise IndexError
    return (None if value == (1 << 7 * width) - 1 else value), position + width


def _checked_mp4(data: bytes) -> bytes:
    """Its tables claim no more samples than the file has bytes."""
    samples, edits = 0, 1
    for number, (kind, start, end) in enumerate(_boxes(data, 0, len(data))):
        if kind == b"cmov" or number > _MAX_BOXES:
            raise MediaFormatError("the MP4 has a compressed header or too many boxes, which is not accepted")
        if kind in _SIZES_PER_SAMPLE:
            samples += int(struct.unpack_from(">I", data, start + _SIZES_PER_SAMPLE[kind])[0])
        elif kind in _RUNS:
            samples = max(samples, _unrolled(data, start, end))
        elif kind == b"elst":
            edits = max(edits, int(struct.unpack_from(">I", data, start + 4)[0]))
    if samples > len(data) or samples * edits > MAX_ENTRIES:
        raise MediaLimitError(
            f"the MP4 claims {samples} samples in {edits} edits; accepted: no more samples than bytes, and "
            f"{MAX_ENTRIES} of both multiplied"
        )
    return data


def _unrolled(data: bytes, start: int, end: int) -> int:
    (count,) = struct.unpack_from(">I", data, start + 4)
    if start + 8 + 8 * count > end:
        raise MediaFormatError("a table of the MP4 is longer than its box: it is damaged")
    return sum(number for number, _ in struct.iter_unpack(">II", data[start + 8 : start + 8 + 8 * count]))


def _boxes(data: bytes, position: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """(kind, start, end) of each box's body, children after their parent."""
    while position + 8 <= end:
        size, kind = struct.unpack_from(">I4s", data, position)
        start = position + 8
        if size == 1:
            (size,) = struct.unpack_from(">Q", data, start)
            start += 8
        stop = end if size == 0 else position + size
        if stop > end or stop < start:
            raise _truncated("MP4")
        yield kind, start, stop
        if kind in _PARENTS:
            yield from _boxes(data, start, stop)
        position = stop
