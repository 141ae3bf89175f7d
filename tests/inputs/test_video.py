"""Video files: what is counted, what is decoded, and what is refused."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
from contextlib import suppress
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs.media_files import encoded, picture
from inputs.video_files import FORMS, all_frames, grey, level, moving, patched, video_file

from mmcore.config import MediaPolicy
from mmcore.errors import MediaError, MediaFormatError, MediaLimitError, MissingExtraError
from mmcore.inputs.video import FrameIndex, decode_video, video_info
from mmcore.request import SourceSpec

OPEN_GOP = "open-gop=1:bframes=3:keyint=8:min-keyint=1:scenecut=0:b-adapt=0"
MOVING: dict[str, bytes] = {
    "closed": video_file(moving(24), gop=6),
    "open": video_file(moving(40), options={"x264-params": OPEN_GOP}),
    "one stretch": video_file(moving(24), gop=100),
    **{form[1]: video_file(moving(20), form=form, gop=5) for form in FORMS[1:]},
}
POLICY = MediaPolicy()


@pytest.mark.parametrize("form", FORMS, ids=[codec for _, codec in FORMS])
@pytest.mark.parametrize("frames", [1, 2, 13])
def test_frames_and_seconds_are_counted(form: tuple[str, str], frames: int) -> None:
    info = video_info(video_file(frames, form=form), POLICY)
    assert (info.width, info.height, info.frames) == (64, 48, frames)
    assert info.seconds == pytest.approx(frames / 10)


@pytest.mark.parametrize("form", FORMS, ids=[codec for _, codec in FORMS])
def test_planned_frames_come_with_their_times(form: tuple[str, str]) -> None:
    media = decode_video(video_file(24, form=form), SourceSpec(frames=(0, 5, 5, 23), size=(28, 56)))
    assert (media.modality, media.data.shape) == ("video", (4, 28, 56, 3))
    assert media.data.dtype == np.uint8
    assert media.times == pytest.approx((0.0, 0.5, 0.5, 2.3))
    for frame, number in zip(media.data, (0, 5, 5, 23), strict=True):
        assert abs(int(frame[20, 20, 0]) - level(number)) <= 2


@pytest.mark.parametrize("name", MOVING)
@settings(max_examples=12)
@given(data=st.data())
def test_a_part_decodes_as_the_whole(name: str, data: st.DataObject) -> None:
    """Bit by bit, also where frames are shown before the keyframe that they follow in the file."""
    expected = all_frames(MOVING[name])
    chosen = st.sets(st.integers(0, len(expected) - 1), min_size=1, max_size=4)
    numbers = tuple(sorted(data.draw(chosen)))
    found = decode_video(MOVING[name], SourceSpec(frames=numbers)).data
    assert np.array_equal(found, np.stack([expected[number] for number in numbers]))


def test_the_open_stretches_are_open() -> None:
    """Else the law above would say nothing about them: frames behind a keyframe are shown before it."""
    with av.open(io.BytesIO(MOVING["open"]), "r") as container:
        packets = [p for p in container.demux(video=0) if p.size]
    keys = [n for n, packet in enumerate(packets) if packet.is_keyframe]
    assert any(packets[key + 1].pts < packets[key].pts for key in keys[1:])  # type: ignore[operator]


def test_only_what_is_needed_is_decoded() -> None:
    times = (0, 2, 1, 10, 8, 9, 12, 11, 20, 22, 21)
    index = FrameIndex(times, keys=(0, 3, 8), unit=Fraction(1), lasting=1)
    assert index.needed({20}) == {8}
    assert index.needed({22}) == {8, 9}
    assert index.needed({2, 21}) == {0, 1, 8, 9, 10}
    assert index.needed({12}) == {3, 4, 5, 6}
    assert index.needed({9}) == {0, 1, 2, 3, 4, 5}  # shown before its keyframe: it leans on both stretches


@pytest.mark.parametrize(("turned", "shape"), [(90, (64, 48)), (180, (48, 64)), (270, (64, 48))])
def test_a_turned_video_is_upright(turned: int, shape: tuple[int, int]) -> None:
    """Stored so that it is turned to the left for display: the dark top is then at the left."""
    data = video_file(4, turned=turned)
    info = video_info(data)
    assert (info.height, info.width) == shape
    frame = decode_video(data, SourceSpec(frames=(3,))).data[0]
    assert frame.shape == (*shape, 3)
    dark = np.rot90(grey(3), turned // 90)[..., 0] < 32
    assert np.array_equal(frame[..., 0] < 32, dark)


def test_a_variable_rate_keeps_its_times() -> None:
    data = video_file(6, times=[0, 10, 300, 310, 700, 2000])
    info = video_info(data)
    assert info.frames == 6
    assert info.seconds == pytest.approx(2.4)  # 2 s and a frame of average length
    assert decode_video(data, SourceSpec(frames=(1, 3, 5))).times == pytest.approx((0.01, 0.31, 2.0))


def test_frames_that_are_not_shown_are_not_counted() -> None:
    """VP8 hides frames that others lean on (RFC 6386): one bit of the frame's first byte."""
    data = video_file(moving(8), form=("webm", "libvpx"), gop=100)
    with av.open(io.BytesIO(data), "r") as container:
        third = bytes([p for p in container.demux(video=0) if p.size][3])
    hidden = data.replace(third, bytes([third[0] & ~0x10]) + third[1:])
    assert hidden != data
    assert video_info(hidden).frames == len(all_frames(hidden)) == 7
    found = decode_video(hidden, SourceSpec(frames=(3, 6))).data
    assert np.array_equal(found, np.stack(all_frames(hidden))[[3, 6]])


# ------------------------------------------------------------------ bad files

GOOD = video_file(10)
FRONT = video_file(10, front=True)
WEBM = video_file(10, form=("webm", "libvpx"))


def sound_only() -> bytes:
    target = io.BytesIO()
    with av.open(target, "w", format="mp4") as container:
        stream: Any = container.add_stream("aac", rate=16_000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 16_000
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return target.getvalue()


HUGE = struct.pack(">I", 0x7FFFFFFF)
BAD: dict[str, tuple[bytes, type[MediaError], str]] = {
    "0 bytes": (b"", MediaFormatError, r"empty \(0 bytes\)"),
    "text": (b"only words\n" * 9, MediaFormatError, "no known format"),
    "a picture": (encoded(picture(9, 9)), MediaFormatError, "the file is PNG"),
    "a playlist": (b"#EXTM3U\nfile:///etc/passwd\n", MediaFormatError, "no known format"),
    "sound": (sound_only(), MediaFormatError, "holds no video"),
    "no frame": (video_file(0, form=("webm", "libvpx")), MediaFormatError, "no frame|no video|damaged"),
    "no frame, MP4": (video_file(0), MediaFormatError, "no frame|no video|damaged|size"),
    "half": (GOOD[: len(GOOD) // 2], MediaFormatError, "truncated"),
    "half, header in front": (FRONT[: len(FRONT) - 200], MediaFormatError, "truncated"),
    "half a header": (WEBM[:60], MediaFormatError, "truncated|no video"),
    "more frames promised": (patched(FRONT, b"stsz", 8, HUGE), MediaLimitError, "claims 2147483"),
    "hours promised": (video_file(2, times=[0, 20_000_000]), MediaLimitError, "max_video_seconds 14400"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_a_typed_error(name: str) -> None:
    data, error, message = BAD[name]
    with pytest.raises(MediaError, match=message) as caught:
        video_info(data, POLICY)
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("box", "offset", "value"),
    [(b"mvhd", 16, HUGE), (b"mdhd", 16, HUGE), (b"tkhd", 20, HUGE), (b"stsz", 8, struct.pack(">I", 12))],
)
def test_a_forged_duration_or_count_changes_nothing(box: bytes, offset: int, value: bytes) -> None:
    assert video_info(patched(GOOD, box, offset, value), POLICY) == video_info(GOOD, POLICY)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_pixels": 64 * 48 - 1}, "64x48 pixels is over the policy's max_pixels 3071"),
        ({"max_video_frames": 9}, "more frames than the policy's max_video_frames 9"),
        ({"max_video_seconds": 0.9}, "lasts 1.0 s, over the policy's max_video_seconds 0.9"),
    ],
)
@pytest.mark.parametrize("data", [GOOD, WEBM], ids=["mp4", "webm"])
def test_a_limit_of_the_policy_is_named(data: bytes, limits: dict[str, Any], message: str) -> None:
    with pytest.raises(MediaLimitError, match=message):
        video_info(data, MediaPolicy(**limits))


def test_without_pyav_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'mmcore-runtime\[media\]'"):
        video_info(GOOD, POLICY)


@settings(max_examples=60)
@given(form=st.sampled_from([GOOD, FRONT, WEBM, MOVING["mpeg4"]]), data=st.data())
def test_damage_is_a_typed_error_or_decodes(form: bytes, data: st.DataObject) -> None:
    """Cut anywhere, a byte changed anywhere: the planned frames, or a `MediaError`; nothing else."""
    cut = data.draw(st.integers(1, len(form)))
    damaged = bytearray(form[:cut])
    for place in data.draw(st.lists(st.integers(0, cut - 1), max_size=3)):
        damaged[place] = data.draw(st.integers(0, 255))
    with suppress(MediaError):
        info = video_info(bytes(damaged), POLICY)
        frames = tuple(range(0, info.frames, 3))
        media = decode_video(bytes(damaged), SourceSpec(frames=frames, size=(28, 28)))
        assert media.data.shape == (len(frames), 28, 28, 3)


def test_fewer_frames_than_planned_are_an_error() -> None:
    """Packets are there and one holds no frame: the count is said."""
    data = video_file(moving(6), form=("webm", "libvpx"), gop=1)
    with av.open(io.BytesIO(data), "r") as container:
        packet = bytes([p for p in container.demux(video=0) if p.size][4])
    broken = data.replace(packet, packet[:1] + b"\xff" * (len(packet) - 1))
    assert video_info(broken).frames == 6
    with pytest.raises(MediaFormatError, match="damaged"):
        decode_video(broken, SourceSpec(frames=(0, 4)))


def test_a_frame_that_outgrows_the_header_is_refused() -> None:
    """The second half of the file is 20 times as large as the first said, in a container of one size."""
    small, large = video_file(moving(4), form=("webm", "libvpx")), moving(4, 1280, 960)
    grown = io.BytesIO()
    with av.open(io.BytesIO(small), "r") as first, av.open(grown, "w", format="webm") as container:
        stream = container.add_stream_from_template(first.streams.video[0])
        second = av.open(io.BytesIO(video_file(large, form=("webm", "libvpx"))), "r")
        for offset, source in ((0, first), (400, second)):
            for packet in source.demux(video=0):
                if packet.size:
                    packet.pts = packet.dts = packet.pts + offset  # type: ignore[operator]
                    packet.stream = stream
                    container.mux(packet)
        second.close()
    assert video_info(grown.getvalue(), POLICY).frames == 8
    with pytest.raises(MediaFormatError):
        decode_video(grown.getvalue(), SourceSpec(frames=(7,)))


MEMORY = """
import resource, sys
from mmcore.config import MediaPolicy
from mmcore.errors import MediaError
from mmcore.inputs.video import decode_video, video_info
from mmcore.request import SourceSpec
data = open(sys.argv[2], "rb").read()
video_info(open(sys.argv[1], "rb").read())  # codecs loaded
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    info = video_info(data, MediaPolicy())
    decode_video(data, SourceSpec(frames=tuple(range(info.frames)), size=(56, 56)))
except MediaError as error:
    print(error, file=sys.stderr)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize("name", ["more frames promised", "hours promised", "whole"])
def test_memory_is_bounded(name: str, tmp_path: Any) -> None:
    """60 frames of 960x540 are 89 MiB of pixels; forged headers promise gigabytes. MiB are printed."""
    data = video_file(moving(60, 960, 540), gop=30) if name == "whole" else BAD[name][0]
    files = {"good.mp4": GOOD, "data.mp4": data}
    for file, content in files.items():
        (tmp_path / file).write_bytes(content)
    command = [sys.executable, "-c", MEMORY, *(str(tmp_path / file) for file in files)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 48, done.stderr
