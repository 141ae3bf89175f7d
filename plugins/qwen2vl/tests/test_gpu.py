"""The tiny checkpoints in bf16 on a GPU: at most twice the error of transformers in the same dtype."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from mmcore_qwen2vl.testing import TOKEN_IDS, Variant, write_tiny_checkpoint

from mmcore.adapter import Layout
from mmcore.request import PlaceholderRange

transformers = pytest.importorskip("transformers")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

IMAGE = TOKEN_IDS["<|image_pad|>"]


def error(mine: torch.Tensor, truth: torch.Tensor) -> float:
    return float((mine.float().cpu() - truth).abs().mean() / truth.abs().mean())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("variant", ["2", "2.5"])
def test_half_precision_is_as_good_as_plain_torch(
    variant: Variant, dtype: torch.dtype, opener: Callable[..., Any], tmp_path: Path
) -> None:
    folder = write_tiny_checkpoint(tmp_path, variant, hidden=128, layers=3, vision_width=64)
    exact, half = opener(folder), opener(folder, dtype, "cuda")
    theirs = transformers.AutoModelForImageTextToText.from_pretrained(folder, dtype=dtype).cuda().eval()
    inputs, plans = exact.items((200, 150), (90, 260))
    rows = [half.encode(inputs, plans), exact.encode(inputs, plans)]
    grid = torch.tensor([plan.geometry for plan in plans])
    pixels = torch.from_numpy(exact.pixels(inputs, plans))
    with torch.inference_mode():
        plain = theirs.model.visual(pixels.cuda().to(dtype), grid_thw=grid.cuda()).pooler_output
    assert error(rows[0], rows[1]) <= 2 * error(plain, rows[1])

    first = 5 + plans[0].rows + 3
    ids = [*range(5), *[IMAGE] * plans[0].rows, 7, 8, 9, *[IMAGE] * plans[1].rows, *range(40)]
    ranges = (PlaceholderRange(5, plans[0].rows, 0, 0), PlaceholderRange(first, plans[1].rows, 1, 0))
    layout = Layout(len(ids), ranges, tuple(plans), ("image", "image"))
    positions = torch.from_numpy(exact.adapter.positions(layout).values).long()
    truth = exact.logits(ids, rows[1], positions, [])
    mine = half.logits(ids, rows[0], positions, [20, 21, 60])
    tokens = torch.tensor([ids]).cuda()
    with torch.inference_mode():
        reference = theirs(
            input_ids=tokens,
            pixel_values=pixels.cuda().to(dtype),
            image_grid_thw=grid.cuda(),
            mm_token_type_ids=(tokens == IMAGE).int(),
        ).logits[0]
    assert error(mine, truth) <= 2 * error(reference, truth)
