"""Bad pictures over every route fail alone; unusual ones answer alike over every route."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine.bad_batch import PARAMS, Bench, noise, picture_prompt
from inputs.bad_media import (
    PICTURE_FILES,
    PICTURES_IN_MEMORY,
    ROUTES,
    FileCase,
    MemoryCase,
    Route,
    by_data_url,
)
from inputs.media_files import encoded
from PIL import Image, ImageOps

from mmcore.errors import MediaFormatError, MediaLimitError, MediaPolicyError, UnsupportedOptionError

FILES: dict[str, FileCase] = {
    **PICTURE_FILES,
    "1x10000": (encoded(Image.new("RGB", (10_000, 1))), MediaLimitError, "10000x1 .*max_aspect 200"),
    "10000x1": (encoded(Image.new("RGB", (1, 10_000))), MediaLimitError, "1x10000 .*max_aspect 200"),
}
MEMORY: dict[str, MemoryCase] = {
    **PICTURES_IN_MEMORY,
    "PIL, 1x10000": (lambda: Image.new("RGB", (1, 10_000)), MediaLimitError, "1x10000 .*max_aspect 200"),
    "array, 1x10000": (lambda: np.zeros((10_000, 1, 3), np.uint8), MediaLimitError, "1x10000 .*max_aspect"),
    "a folder": (lambda: Path("/"), MediaPolicyError, "regular file"),
    "a scheme": (lambda: "gopher://a/b.png", MediaPolicyError, "'gopher'.*accepted are"),
    "an inner address": (lambda: "http://127.0.0.1/b.png", MediaPolicyError, ""),
    "bad base64": (lambda: "data:image/png;base64,????", MediaFormatError, "base64"),
}


def by_pil(data: bytes, folder: Path) -> Any:
    return Image.open(io.BytesIO(data))


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("case", FILES)
def test_bad_files(pictures_bench: Bench, tmp_path: Path, route: Route, case: str) -> None:
    data, error, message = FILES[case]
    pictures_bench.expect(
        picture_prompt(route(data, tmp_path)), error, f"image.*: .*({message})", forbidden=str(tmp_path)
    )


@pytest.mark.parametrize("case", MEMORY)
def test_bad_media_in_memory(pictures_bench: Bench, tmp_path: Path, case: str) -> None:
    make, error, message = MEMORY[case]
    pictures_bench.expect(picture_prompt(make()), error, f"^image: .*({message})", forbidden=str(tmp_path))


@pytest.mark.parametrize("case", ["truncated jpeg", "text", "1x10000", "30000x30000"])
def test_the_error_says_which_of_several(pictures_bench: Bench, case: str) -> None:
    data, error, _ = FILES[case]
    bad = picture_prompt([noise(1), data, noise(2)])
    where = "item 2" if case == "truncated jpeg" else "^image 2 of 3"
    pictures_bench.expect(bad, error, where)


@pytest.mark.parametrize("part", ["image", "image_url"])
@pytest.mark.parametrize("case", FILES)
def test_bad_files_in_a_conversation(pictures_bench: Bench, tmp_path: Path, part: str, case: str) -> None:
    data, error, message = FILES[case]
    url = by_data_url(data, tmp_path)
    medium = {"type": "image_url", "image_url": {"url": url}} if part == "image_url" else {
        "type": "image", "image": data,
    }  # fmt: skip
    bad = [{"role": "user", "content": [medium, {"type": "text", "text": "What is it?"}]}]
    good = [{"role": "user", "content": "Hello, who are you?"}]
    alone = pictures_bench.llm.chat(good, PARAMS).token_ids
    outputs = pictures_bench.llm.chat([good, bad, good], PARAMS)
    assert type(outputs[1].error) is error
    assert [outputs[0].token_ids, outputs[2].token_ids] == [alone, alone]
    with pytest.raises(error, match=message):
        pictures_bench.llm.chat(bad, PARAMS)


def test_options_that_are_wrong(pictures_bench: Bench) -> None:
    for options, message in (
        ({"depth": 2}, "'depth' is unknown"),
        ({"max_pixels": -1}, "must be a count of pixels"),
        ({"max_pixels": "many"}, "must be a count of pixels"),
        ({"min_pixels": 99_999, "max_pixels": 5_000}, "min_pixels 99999 is over max_pixels 5000"),
    ):
        bad = picture_prompt(noise(1), mm_processor_kwargs=options)
        pictures_bench.expect(bad, UnsupportedOptionError, f"^image: .*{message}")


# ------------------------------------------------------------------ unusual and fine


@pytest.mark.parametrize("route", [*ROUTES, by_pil])
def test_one_pixel_is_a_field_of_its_colour(pictures_bench: Bench, tmp_path: Path, route: Route) -> None:
    field = pictures_bench.tokens(picture_prompt(Image.new("RGB", (56, 56), (200, 30, 90))))
    pixel = route(encoded(Image.new("RGB", (1, 1), (200, 30, 90))), tmp_path)
    for output in pictures_bench.run_beside_good(picture_prompt(pixel)):
        assert output.token_ids == field


def test_one_pixel_as_an_array(pictures_bench: Bench) -> None:
    colour = np.array([[[200, 30, 90]]], np.uint8)
    field = np.broadcast_to(colour, (56, 56, 3))
    assert pictures_bench.tokens(picture_prompt(colour)) == pictures_bench.tokens(picture_prompt(field))


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("route", [*ROUTES, by_pil])
@pytest.mark.parametrize("orientation", [2, 3, 6, 8])
def test_exif_rotation(
    pictures_bench: Bench, tmp_path: Path, route: Route, orientation: int, kind: str
) -> None:
    """The file answers as the picture that a viewer shows, not as the one that is stored."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(noise(4, 112, 56), kind, exif=exif)
    stored = Image.open(io.BytesIO(data))
    seen = ImageOps.exif_transpose(stored)
    shown = pictures_bench.llm.generate(picture_prompt(np.asarray(seen)), PARAMS)
    plain = pictures_bench.tokens(picture_prompt(np.asarray(stored)))
    for output in pictures_bench.run_beside_good(picture_prompt(route(data, tmp_path))):
        assert output.token_ids == shown.token_ids
        assert output.prompt_token_ids == shown.prompt_token_ids
    assert shown.token_ids != plain, "the turned picture must tell itself from the stored one"


def test_the_same_pixels_over_every_route(pictures_bench: Bench, tmp_path: Path) -> None:
    image = noise(5)
    data = encoded(image)
    answers = {pictures_bench.tokens(picture_prompt(route(data, tmp_path))) for route in [*ROUTES, by_pil]}
    answers |= {pictures_bench.tokens(picture_prompt(value)) for value in (image, np.asarray(image))}
    assert len(answers) == 1
