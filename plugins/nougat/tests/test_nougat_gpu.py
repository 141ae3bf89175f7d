"""Pages on a GPU: half precision at most twice as far from float32 as the reference in the same dtype."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mmcore_nougat.adapter import NougatAdapter
from mmcore_nougat.testing import VARIANTS, Variant, write_tiny_checkpoint
from torch import Tensor
from transformers import VisionEncoderDecoderModel

from mmcore import LLM, SamplingParams
from mmcore.inputs.checkpoint import Checkpoint
from mmcore.model.weights import build_model, load_weights

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

DEVICE = "cuda"
WIDE: dict[Variant, dict[str, Any]] = {
    "nougat": {"height": 224, "width": 168, "channels": 64, "window": 7, "hidden": 256},
    "donut": {"height": 202, "width": 158, "channels": 64, "window": 5, "hidden": 256},
}
"""Heads of 32 values, as in every published size; the form's maps are cut unevenly."""


@pytest.fixture(scope="module", params=VARIANTS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("gpu"), request.param, **WIDE[request.param])


def pages(count: int, height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, height, width, 3), np.uint8)


def rows_of(folder: Path, found: np.ndarray, dtype: torch.dtype) -> Tensor:
    checkpoint = Checkpoint(folder)
    adapter = NougatAdapter.from_config(checkpoint.config, checkpoint)
    model = build_model(adapter, dtype, torch.device(DEVICE))
    load_weights(model, adapter, checkpoint.weight_files())
    with torch.inference_mode():
        rows: Tensor = model.encoder(torch.from_numpy(found).to(DEVICE)).float().cpu()
    return rows


@torch.inference_mode()
def reference_rows(folder: Path, found: np.ndarray, dtype: torch.dtype) -> Tensor:
    checkpoint = Checkpoint(folder)
    encoder: Any = NougatAdapter.from_config(checkpoint.config, checkpoint).encoder
    pixels = torch.from_numpy((found / 255 - np.array(encoder.mean)) / np.array(encoder.std))
    loaded: Any = VisionEncoderDecoderModel
    model = loaded.from_pretrained(folder, dtype=dtype).eval().to(DEVICE)
    rows = model.encoder(pixels.permute(0, 3, 1, 2).to(DEVICE, dtype)).last_hidden_state
    rows = model.enc_to_dec_proj(rows) if hasattr(model, "enc_to_dec_proj") else rows
    wanted: Tensor = rows.flatten(0, 1).float().cpu()
    return wanted


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rows_in_half_precision(folder: Path, dtype: torch.dtype) -> None:
    config: Any = Checkpoint(folder).config["encoder"]["image_size"]
    found = pages(3, *config)
    exact = reference_rows(folder, found, torch.float32)
    mine, other = rows_of(folder, found, dtype), reference_rows(folder, found, dtype)
    assert (mine - exact).square().mean() <= 4 * (other - exact).square().mean()
    assert (mine - exact).abs().max() <= 2 * (other - exact).abs().max() + 1e-3 * exact.abs().max()


def test_many_pages_give_the_rows_of_each_alone(folder: Path) -> None:
    config: Any = Checkpoint(folder).config["encoder"]["image_size"]
    found = pages(19, *config)
    together = rows_of(folder, found, torch.float32)
    alone = torch.cat([rows_of(folder, one[None], torch.float32) for one in found[:2]])
    assert (together[: len(alone)] - alone).abs().max() <= 1e-5 * alone.abs().max()


def test_answers_in_float32_are_those_of_the_cpu(folder: Path) -> None:
    """Twice the same shapes: the second time the encoder is a replayed graph."""
    prompts = [{"prompt": "", "multi_modal_data": {"image": page}} for page in pages(6, 120, 90)]
    sampling = SamplingParams(max_tokens=16, ignore_eos=True)
    with LLM(folder, dtype="float32") as llm:
        found = [llm.generate(prompt, sampling, use_tqdm=False) for prompt in prompts]
    with LLM(folder, device="cpu", dtype="float32") as llm:
        wanted = [llm.generate(prompt, sampling, use_tqdm=False) for prompt in prompts]
    assert [output.token_ids for output in found] == [output.token_ids for output in wanted]
