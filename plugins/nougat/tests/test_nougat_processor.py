"""Pages and their rows against transformers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from mmcore_nougat.encoder import TOGETHER
from mmcore_nougat.processor import PageProcessor, without_margins
from torch import Tensor

from mmcore.errors import MediaLimitError, UnsupportedOptionError
from mmcore.inputs.ops import NumpyOps
from mmcore.request import DecodedMedia, MediaInfo

if TYPE_CHECKING:
    from tests.conftest import Subject

OPS = NumpyOps()
Ink = tuple[int, int, int, int] | None
"""Top, left, height and width of what is dark on a light page; none: squares all over."""

side = st.integers(32, 400)
sizes = st.tuples(side, side)
inks = st.none() | st.tuples(st.integers(0, 31), st.integers(0, 31), st.integers(1, 400), st.integers(1, 400))


def page(size: tuple[int, int], ink: Ink, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    height, width = size
    squares = rng.integers(0, 256, (1 + height // 9, 1 + width // 9, 3), np.uint8)
    dots = squares.repeat(9, 0).repeat(9, 1)[:height, :width]
    if ink is None:
        return dots
    top, left, tall, wide = ink
    field = rng.integers(235, 256, (height, width, 3), np.uint8)
    field[top : top + tall, left : left + wide] = dots[top : top + tall, left : left + wide] // 2
    return field


def preprocessed(processor: Any, image: np.ndarray) -> np.ndarray:
    info = MediaInfo("image", width=image.shape[1], height=image.shape[0])
    (plan,) = processor.measure([info], [processor])
    array: np.ndarray = processor.preprocess(DecodedMedia("image", image), plan, OPS).arrays["page"]
    return array


@example(size=(64, 48), ink=None, seed=0)
@example(size=(300, 300), ink=(10, 10, 200, 4), seed=0)  # so long that it is averaged in squares first
@given(size=sizes, ink=inks, seed=st.integers(0, 99))
@settings(max_examples=100)
def test_pages_equal_the_reference(subject: Subject, size: tuple[int, int], ink: Ink, seed: int) -> None:
    image = page(size, ink, seed)
    processor = subject.adapter.inputs
    assert isinstance(processor, PageProcessor)
    left = without_margins(image, OPS, 1e9) if processor.crops else image
    assume(max(left.shape[:2]) <= processor.limits["image"].max_aspect * min(left.shape[:2]))
    wanted = subject.reference.pages.of(image).transpose(1, 2, 0)
    found = preprocessed(processor, image)
    assert found.shape == wanted.shape
    assert found.dtype == np.uint8
    np.testing.assert_allclose(subject.normal(found), wanted, atol=2e-6)


@pytest.mark.parametrize("level", [0, 128, 255])
def test_a_page_of_one_level_stays_whole(subject: Subject, level: int) -> None:
    image = np.full((90, 70, 3), level, np.uint8)
    wanted = subject.reference.pages.of(image).transpose(1, 2, 0)
    np.testing.assert_allclose(subject.normal(preprocessed(subject.adapter.inputs, image)), wanted, atol=2e-6)


def test_a_rule_alone_is_not_cut_out(papers: Subject) -> None:
    """The reference scales it to the page's width, and needs gigabytes or fails."""
    processor: Any = papers.adapter.inputs
    image = np.full((200, 300, 3), 255, np.uint8)
    image[50, 10:290] = 0
    whole = preprocessed(replace(processor, crops=False), image)
    np.testing.assert_array_equal(preprocessed(processor, image), whole)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(3300, 2550), (1000, 4000), (700, 500)])
def test_pages_of_the_published_size_equal_the_reference(papers: Subject, size: tuple[int, int]) -> None:
    from transformers import AutoImageProcessor

    loaded: Any = AutoImageProcessor
    published = {"height": 896, "width": 672}
    reference = loaded.from_pretrained(papers.folder, backend="pil", size=published)
    processor: Any = replace(papers.adapter.inputs, **published)  # type: ignore[type-var]
    image = page(size, (30, 20, size[0] // 2, size[1] - 100), 1)
    wanted = np.asarray(reference(image, input_data_format="channels_last")["pixel_values"][0])
    found = papers.normal(preprocessed(processor, image))
    np.testing.assert_allclose(found, wanted.transpose(1, 2, 0), atol=2e-6)


# ------------------------------------------------------------------ rows


@torch.inference_mode()
def rows_of(subject: Subject, pages: np.ndarray) -> Tensor:
    """[N, rows, width]."""
    rows: Tensor = subject.model.encoder(torch.from_numpy(pages))
    return rows.unflatten(0, (len(pages), -1))  # type: ignore[no-untyped-call, no-any-return]


@torch.inference_mode()
def reference_rows(subject: Subject, pages: np.ndarray) -> Tensor:
    model = subject.reference.model
    pixels = torch.as_tensor(subject.normal(pages), dtype=torch.float32).permute(0, 3, 1, 2)
    rows: Tensor = model.encoder(pixels).last_hidden_state
    return model.enc_to_dec_proj(rows) if hasattr(model, "enc_to_dec_proj") else rows


@given(seed=st.integers(0, 999), count=st.sampled_from([1, 2, 3, TOGETHER + 1]))
@settings(max_examples=20)
def test_rows_equal_the_reference(subject: Subject, seed: int, count: int) -> None:
    processor: Any = subject.adapter.inputs
    shape = (count, processor.height, processor.width, 3)
    pages = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    rows, wanted = rows_of(subject, pages), reference_rows(subject, pages)
    assert rows.shape == wanted.shape == (count, processor.rows, processor.row_width)
    assert (rows - wanted).abs().max() <= 1e-4 * wanted.abs().max()
    alone = torch.cat([rows_of(subject, one[None]) for one in pages])
    assert (rows - alone).abs().max() <= 1e-5 * alone.abs().max()


def test_rows_depend_on_far_places(subject: Subject) -> None:
    """Else windows that never meet would go unseen."""
    processor: Any = subject.adapter.inputs
    pages = np.full((2, processor.height, processor.width, 3), 90, np.uint8)
    pages[1, :4, :4] = 200
    rows = rows_of(subject, pages)
    changed = (rows[0] - rows[1]).abs().amax(-1) > 1e-6
    assert int(changed.sum()) > processor.rows // 2


# ------------------------------------------------------------------ limits


def test_limits_are_named(subject: Subject) -> None:
    def ask(*images: np.ndarray, **more: Any) -> None:
        prompt = {"prompt": "", "multi_modal_data": {"image": list(images)}, **more}
        subject.llm.generate(prompt, use_tqdm=False)

    with pytest.raises(MediaLimitError, match="min_side 32"):
        ask(page((10, 10), None))
    with pytest.raises(MediaLimitError, match="max_aspect 20"):
        ask(page((32, 700), None))
    with pytest.raises(MediaLimitError, match="max_items 1"):
        ask(*[page((60, 60), None)] * 10)
    with pytest.raises(UnsupportedOptionError, match="dpi"):
        ask(page((60, 60), None), mm_processor_kwargs={"dpi": 200})
