"""Preprocessing on the CPU runs beside the engine's steps."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import mmcore_qwen2vl.testing
import numpy as np
import pytest
from PIL import Image

from mmcore import LLM, SamplingParams

ROUNDS = 6
PREPROCESSING = 0.2
"""Seconds it takes at least."""


def large_jpeg(seed: int, width: int) -> bytes:
    noise = np.random.default_rng(seed).integers(0, 255, (width * 3 // 4, width, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, "JPEG", quality=90)
    return file.getvalue()


def slow_picture(llm: LLM) -> int:
    """Width of a JPEG that takes `PREPROCESSING` here."""
    for width in range(2000, 9000, 400):
        prepared = llm.preprocess(prompt(large_jpeg(0, width)))
        before = time.perf_counter()
        llm._pipeline.preprocess(prepared.items[0])
        if time.perf_counter() - before >= PREPROCESSING:
            return width
    raise AssertionError("no picture is slow enough")


def prompt(data: bytes) -> Any:
    return {"prompt": "What is it?", "multi_modal_data": {"image": [data]}}


def worst_gap(llm: LLM, picture: bytes) -> tuple[float, int]:
    """Longest gap between tokens of a running request over their median, and how many tokens came, while
    another request's picture is prepared and preprocessed."""
    running = llm.generate_async("Count.", SamplingParams(max_tokens=400, ignore_eos=True), streaming=True)
    moments: list[float] = []
    other = None
    for output in running:
        moments.append(time.monotonic())
        if len(output.token_ids) == 20:
            other = llm.generate_async(prompt(picture), SamplingParams(max_tokens=1))
        if other is not None and other.done:
            break
    running.abort()
    assert other is not None
    timings = other.result().timings
    gaps = np.diff([at for at in moments if at <= timings.scheduled])
    inside = np.diff([at for at in moments if timings.arrived <= at <= timings.scheduled])
    assert timings.scheduled - timings.arrived >= PREPROCESSING * 0.8
    return float(inside.max() / np.median(gaps)), len(inside)


@pytest.mark.timing
def test_decode_steps_go_on_while_a_picture_is_preprocessed(tmp_path: Path) -> None:
    """The machine's own noise only adds to a gap, so the best of some rounds is judged."""
    folder = mmcore_qwen2vl.testing.write_tiny_checkpoint(
        tmp_path, hidden=512, layers=12, heads=8, kv_heads=8, intermediate=2048
    )
    with LLM(folder, device="cpu", preprocess_workers=1) as llm:
        width = slow_picture(llm)
        rounds = [worst_gap(llm, large_jpeg(n, width)) for n in range(1, ROUNDS + 1)]
    assert min(count for _, count in rounds) >= 4, rounds
    assert min(gap for gap, _ in rounds) <= 1.5, rounds
