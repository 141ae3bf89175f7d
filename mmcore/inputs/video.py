"""Video files to frames: packets are counted, and only the frames of a plan are decoded.

A header's own count and duration are not believed: packets are demuxed, which decodes nothing, and what they
say is the truth. Decoding starts at the keyframe before a wanted frame and ends at that frame; packets of
other stretches are passed over. Each frame is turned, and resized to what the plan wants, as soon as it is
there, so that memory holds the planned frames and little more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from mmcore.config import MediaPolicy
from mmcore.errors import MediaFormatError, MediaLimitError
from mmcore.inputs.pyav import open_container
from mmcore.inputs.resize import resized
from mmcore.request import DecodedMedia, MediaInfo, SourceSpec

if TYPE_CHECKING:
    from av import Packet, VideoFrame
    from av.container import InputContainer
    from av.video.stream import VideoStream

CODECS = ("h264", "hevc", "mpeg4", "vp8", "vp9", "av1")
_PADDING = 256
"""Pixels a side that a decoder may add to a frame: it aligns its buffers."""


@dataclass(frozen=True, slots=True)
class FrameIndex:
    """Packets of a stream, in file order, and when their frames are shown. Times in units of ``unit``."""

    times: tuple[int | None, ...]
    """Of each packet; None where its frame is decoded, but not shown."""
    keys: tuple[int, ...]
    """Packets at which decoding may start; the first is 0."""
    unit: Fraction
    lasting: int
    """How long the last packet says that it lasts."""

    @property
    def shown(self) -> list[int]:
        """Times of the frames, in the order in which they are seen."""
        return sorted({time for time in self.times if time is not None})

    def seconds(self) -> float:
        """Frames at their average distance, the last one included; 0.0 where that cannot be told."""
        shown = self.shown
        if len(shown) < 2:
            return float(self.lasting * self.unit)
        return float((shown[-1] - shown[0]) * self.unit * len(shown) / (len(shown) - 1))

    def needed(self, wanted: set[int]) -> set[int]:
        """The packets to decode for the frames of these times."""
        last: dict[int, int] = {}
        """By stretch, a keyframe and what follows it: the last packet that is needed."""
        for number in (n for n, time in enumerate(self.times) if time in wanted):
            stretch = bisect_right(self.keys, number) - 1
            last[stretch] = number
            key, time = self.times[self.keys[stretch]], self.times[number]
            # A frame behind a keyframe in the file that is shown before it leans on the stretch before.
            if stretch and key is not None and time is not None and time < key:
                last[stretch - 1] = self.keys[stretch] - 1
        return {n for stretch, end in last.items() for n in range(self.keys[stretch], end + 1)}


def video_info(data: bytes, policy: MediaPolicy | None = None) -> MediaInfo:
    """What a file holds: size as seen, frames and seconds as its packets say. One frame is decoded, which
    tells how it is turned.

    Raises `MediaFormatError`, and `MediaLimitError` naming the limit of the policy, before that frame.
    """
    with open_container(data) as container:
        stream = _video_stream(container)
        if policy is not None:
            _check_size(stream, policy)
        index = _read_index(container, stream, policy)
    _check_length(index, policy)
    with open_container(data) as container:
        stream = _video_stream(container)
        first = next(_decoded(container, stream, index.needed({index.shown[0]})), None)
        if first is None:
            raise MediaFormatError("not one frame of the video can be decoded: it is truncated or damaged")
        width, height = stream.codec_context.width, stream.codec_context.height
        if _quarters(first) % 2:
            width, height = height, width
    return MediaInfo(
        "video", width=width, height=height, frames=len(index.shown), seconds=round(index.seconds(), 9)
    )


def decode_video(data: bytes, spec: SourceSpec) -> DecodedMedia:
    """The frames of a plan, uint8 [frames, height, width, 3], at the plan's size.

    Raises `MediaFormatError` where the file yields fewer than planned.
    """
    with open_container(data) as container:
        index = _read_index(container, _video_stream(container))
    shown = index.shown
    if spec.frames and not 0 <= min(spec.frames) <= max(spec.frames) < len(shown):
        raise MediaFormatError(f"frame {max(spec.frames)} is planned; the video has {len(shown)} frames")
    numbers = spec.frames or range(len(shown))
    wanted = [shown[number] for number in numbers]
    with open_container(data) as container:
        stream = _video_stream(container)
        frames = _decoded(container, stream, index.needed(set(wanted)))
        pictures = _collect(frames, wanted, spec.size)
    seconds = tuple(float((time - shown[0]) * index.unit) for time in wanted)
    return DecodedMedia("video", pictures, times=seconds)


def _video_stream(container: InputContainer) -> VideoStream:
    """The first stream of moving pictures, ready to be decoded in this thread."""
    import av

    covers = av.stream.Disposition.attached_pic
    stream = next((s for s in container.streams.video if not s.disposition & covers), None)
    if stream is None:
        raise MediaFormatError("the file holds no video, only sound or other data")
    codec = stream.codec_context
    if codec is None or codec.codec.canonical_name not in CODECS:
        raise MediaFormatError(f"the codec of the video is not accepted; accepted: {', '.join(CODECS)}")
    if min(codec.width, codec.height) < 1:
        raise MediaFormatError("the video has no picture size in its header")
    codec.thread_count = 1  # the pool beside the engine has a thread an item already
    largest = (codec.width + _PADDING) * (codec.height + _PADDING)
    codec.options = {"max_pixels": str(largest)}  # a frame that outgrows its header is refused
    return stream


def _check_size(stream: VideoStream, policy: MediaPolicy) -> None:
    width, height = stream.codec_context.width, stream.codec_context.height
    if width * height > policy.max_pixels:
        raise MediaLimitError(
            f"a video of {width}x{height} pixels is over the policy's max_pixels {policy.max_pixels}"
        )


def _check_length(index: FrameIndex, policy: MediaPolicy | None) -> None:
    if not index.shown:
        raise MediaFormatError("the video holds no frame")
    if policy is not None and index.seconds() > policy.max_video_seconds:
        raise MediaLimitError(
            f"the video lasts {index.seconds():.1f} s, over the policy's max_video_seconds "
            f"{policy.max_video_seconds:g}"
        )


def _packets(container: InputContainer, stream: VideoStream) -> Iterator[Packet[VideoStream]]:
    return (packet for packet in container.demux(stream) if packet.size)


def _read_index(
    container: InputContainer, stream: VideoStream, policy: MediaPolicy | None = None
) -> FrameIndex:
    """Demux the whole stream, decode nothing."""
    times: list[int | None] = []
    keys = [0]
    lasting = 0
    hides = stream.codec_context.codec.canonical_name == "vp8"
    for packet in _packets(container, stream):
        if packet.is_corrupt:
            raise MediaFormatError("a frame of the video is incomplete: the file is truncated or damaged")
        hidden = packet.is_discard or (hides and not memoryview(packet)[0] & 0x10)  # RFC 6386, 9.1
        if packet.is_keyframe and times:
            keys.append(len(times))
        times.append(None if hidden else _time(packet))
        lasting = packet.duration or 0
        if policy is not None and len(times) > policy.max_video_frames:
            raise MediaLimitError(
                f"the video has more frames than the policy's max_video_frames {policy.max_video_frames}"
            )
    if stream.frames > len(times):
        raise MediaFormatError(
            f"the header promises {stream.frames} frames and the file holds {len(times)}: it is truncated"
        )
    return FrameIndex(tuple(times), tuple(keys), stream.time_base or Fraction(1), lasting)


def _time(packet: Packet[VideoStream]) -> int:
    time = packet.dts if packet.pts is None else packet.pts
    if time is None:
        raise MediaFormatError("a frame of the video has no time")
    return time


def _decoded(container: InputContainer, stream: VideoStream, needed: set[int]) -> Iterator[VideoFrame]:
    """Frames of the ``needed`` packets, which come in runs that each start at a keyframe."""
    codec = stream.codec_context
    running = False
    for number, packet in enumerate(_packets(container, stream)):
        if number in needed:
            running = True
            yield from codec.decode(packet)
        elif running:
            running = False
            yield from codec.decode(None)
            codec.flush_buffers()
    if running:
        yield from codec.decode(None)


def _collect(frames: Iterator[VideoFrame], wanted: Sequence[int], size: tuple[int, int] | None) -> np.ndarray:
    """uint8 [wanted, height, width, 3]. ``size`` None: as the first frame."""
    places: dict[int, list[int]] = {}
    for place, time in enumerate(wanted):
        places.setdefault(time, []).append(place)
    pictures: np.ndarray | None = None
    for frame in frames:
        found = None if frame.pts is None else places.pop(frame.pts, None)
        if found is None:
            continue
        picture = _picture(frame, size)
        if pictures is None:
            size = picture.shape[0], picture.shape[1]
            pictures = np.empty((len(wanted), *picture.shape), np.uint8)
        pictures[found] = picture
        if not places:
            return pictures
    missing = sum(map(len, places.values()))
    raise MediaFormatError(
        f"{len(wanted) - missing} of {len(wanted)} planned frames can be decoded: the file is damaged"
    )


def _picture(frame: VideoFrame, size: tuple[int, int] | None) -> np.ndarray:
    """uint8 [height, width, 3], turned as the file says, at this size."""
    picture = np.rot90(frame.to_ndarray(format="rgb24"), _quarters(frame))
    if size is None or picture.shape[:2] == size:
        return picture
    return resized(picture, *size, Image.Resampling.BICUBIC)


def _quarters(frame: VideoFrame) -> int:
    """Quarter turns to the left that show the frame upright."""
    return round(frame.rotation / 90) % 4
