"""Bad input over every route is a typed error of that item, named, and never a warning or a leak."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inputs.bad_media import (
    GOOD_PICTURE,
    PICTURE_FILES,
    PICTURES_IN_MEMORY,
    ROUTES,
    SOUND_FILES,
    SOUNDS_IN_MEMORY,
    UNDECODABLE,
    FileCase,
    MemoryCase,
    Route,
)
from inputs.media_files import encoded, picture, png_header_only, tone, wav
from inputs.toy_family import ToyInputs, toy_pipeline
from PIL import Image

from mmcore.config import MediaPolicy
from mmcore.errors import MediaError, MediaFileError, MediaLimitError, MMCoreError
from mmcore.inputs.pipeline import InputPipeline

LIMITED = ToyInputs(max_side=5_000, max_aspect=100.0)

IMAGE_FILES: dict[str, FileCase] = {
    **PICTURE_FILES,
    "1x1": (encoded(picture(1, 1)), MediaLimitError, "1x1 pixels: .*min_side 2"),
    "1x10000": (encoded(picture(10_000, 1)), MediaLimitError, "10000x1 pixels: .*min_side 2"),
    "3x900": (encoded(picture(3, 900)), MediaLimitError, "3x900 pixels: .*max_aspect 100"),
    "too large a side": (png_header_only(6_000, 60), MediaLimitError, "6000x60 pixels: .*max_side 5000"),
}
AUDIO_FILES: dict[str, FileCase] = {
    **SOUND_FILES,
    "too long": (wav(np.zeros(31 * 8_000), rate=8_000), MediaLimitError, "31.00 s, over max_seconds 30"),
}


@pytest.fixture(scope="module")
def pipeline() -> InputPipeline:
    return toy_pipeline(adapter={"inputs": LIMITED})


def run(pipeline: InputPipeline, modality: str, media: list[Any]) -> None:
    """All the way to the arrays."""
    request = pipeline.prepare({"prompt": "x", "multi_modal_data": {modality: media}}, request_id="r")
    for item in request.items:
        pipeline.preprocess(item)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("case", IMAGE_FILES)
def test_bad_picture_files(pipeline: InputPipeline, tmp_path: Path, route: Route, case: str) -> None:
    data, error, message = IMAGE_FILES[case]
    with pytest.raises(error, match=message) as caught:
        run(pipeline, "image", [GOOD_PICTURE, route(data, tmp_path)])
    check_text(caught.value, tmp_path)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("case", AUDIO_FILES)
def test_bad_sound_files(pipeline: InputPipeline, tmp_path: Path, route: Route, case: str) -> None:
    data, error, message = AUDIO_FILES[case]
    with pytest.raises(error, match=message) as caught:
        run(pipeline, "audio", [route(data, tmp_path)])
    check_text(caught.value, tmp_path)


def check_text(error: MMCoreError, folder: Path) -> None:
    """No heap pointer, no path, no class of somebody else's."""
    text = str(error)
    assert not re.search(r"\b0x[0-9a-f]{4}", text)
    assert str(folder) not in text
    assert "BytesIO" not in text
    assert isinstance(error, MediaError)
    assert error.http_status == 400


@pytest.mark.parametrize("case", [c for c, (_, _, m) in IMAGE_FILES.items() if UNDECODABLE not in m])
def test_errors_name_the_item(pipeline: InputPipeline, case: str) -> None:
    with pytest.raises(MMCoreError, match=r"^image 2 of 3: "):
        pipeline.prepare(
            {
                "prompt": "x",
                "multi_modal_data": {"image": [GOOD_PICTURE, IMAGE_FILES[case][0], GOOD_PICTURE]},
            },
            request_id="r",
        )


MEMORY: dict[tuple[str, str], MemoryCase] = {
    **{("image", name): case for name, case in PICTURES_IN_MEMORY.items()},
    **{("audio", name): case for name, case in SOUNDS_IN_MEMORY.items()},
    ("image", "PIL, tiny"): (lambda: picture(1, 1), MediaLimitError, "1x1 pixels"),
    ("image", "PIL, thin"): (lambda: picture(10_000, 2), MediaLimitError, "max_side 5000"),
    ("image", "array, tiny"): (lambda: np.zeros((1, 1, 3), np.uint8), MediaLimitError, "1x1 pixels"),
    ("audio", "too long"): (lambda: (np.zeros(31 * 8_000), 8_000), MediaLimitError, "max_seconds 30"),
}


@pytest.mark.parametrize(("modality", "case"), MEMORY)
def test_bad_media_in_memory(pipeline: InputPipeline, modality: str, case: str, tmp_path: Path) -> None:
    make, error, message = MEMORY[modality, case]
    with pytest.raises(error, match=message) as caught:
        run(pipeline, modality, [make()])
    assert str(caught.value).startswith(f"{modality}: ")
    check_text(caught.value, tmp_path)


def test_budgets_of_the_policy() -> None:
    small = toy_pipeline(policy=MediaPolicy(max_bytes=5_000, max_pixels=1_000, max_samples=1_000))
    for media, message in (
        (GOOD_PICTURE + b"\0" * 5_000, "max_bytes 5000"),
        (encoded(Image.new("L", (40, 40))), "max_pixels 1000"),
        (np.zeros((40, 40), np.uint8), "max_pixels 1000"),
    ):
        with pytest.raises(MediaLimitError, match=f"image: .*{message}"):
            run(small, "image", [media])
    for sound in (wav(np.zeros((600, 2))), (np.zeros((600, 2)), 8_000)):
        with pytest.raises(MediaLimitError, match="audio: 1200 samples x channels are over max_samples 1000"):
            run(small, "audio", [sound])


def test_a_missing_file_is_told_without_more_than_the_caller_gave(pipeline: InputPipeline) -> None:
    with pytest.raises(MediaFileError, match=r"^image: there is no such file: 'nothing/here\.png'$"):
        run(pipeline, "image", ["nothing/here.png"])


def test_good_sound_of_every_kind_comes_through(pipeline: InputPipeline) -> None:
    """8 kHz, stereo: what is unusual and fine stays fine."""
    samples = tone(440, 8_000)
    stereo = (np.stack([samples, samples], axis=1) * 30_000).astype(np.int16)
    for media in (wav(stereo, rate=8_000), (stereo, 8_000), (samples, 8_000)):
        request = pipeline.prepare({"prompt": "x", "multi_modal_data": {"audio": media}}, request_id="r")
        arrays = pipeline.preprocess(request.items[0]).arrays
        scale = np.abs(arrays["samples"]).max()
        assert np.abs(arrays["samples"] / scale - tone(440, 16_000))[400:-400].max() < 2e-2
        assert request.items[0].plan.rows == 10


def test_a_rotated_picture_is_measured_as_one_sees_it(pipeline: InputPipeline) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(picture(84, 28), "JPEG", exif=exif)
    for media in (data, Image.open(io.BytesIO(data))):
        (item,) = pipeline.prepare(
            {"prompt": "x", "multi_modal_data": {"image": media}}, request_id="r"
        ).items
        assert item.plan.geometry == (3, 1)
        assert pipeline.preprocess(item).arrays["pixels"].shape == (84, 28, 3)
