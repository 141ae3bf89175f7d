"""A cache of float8 changes an answer a little, the schedule changes it no more than before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from mmcore.config import EngineConfig, KvCacheConfig
from mmcore.runner.kv_cache import find_scales
from mmcore.runner.memory import num_blocks

BOUND = 0.12
"""Of the logits' norm, for the median request. A value of e4m3 is off by up to 2^-4 of itself, most by less;
the tiny models' random layers pass an error on without damping it."""
SCHEDULES = [
    {"max_num_tokens": 7, "max_batch_size": 5, "block_size": 4, "preempt": {6: 1, 15: 0}},
    {"max_num_tokens": 33, "kv_tokens": 4096, "reuse": False, "arrivals": {1: 4, 2: 8}, "depth": 1},
    {"max_num_tokens": 64, "graphs": True, "arrivals": {1: 9}},
]


def test_half_as_many_bytes_hold_as_many_tokens(drives: Any) -> None:
    decoder = drives["pictures"].family.adapter.decoder
    sizes = [
        num_blocks(
            decoder,
            EngineConfig(kv_cache=KvCacheConfig(dtype=dtype)),
            torch.bfloat16,
            torch.device("cpu"),
        )
        for dtype in ("auto", "fp8")
    ]
    assert sizes[1] == pytest.approx(2 * sizes[0], abs=1)


@pytest.mark.parametrize("family", ["pictures", "tiles", "sounds", "captions"])
def test_first_logits_are_near_those_of_the_models_dtype(
    family: str, drives: Any, make_knobs: Callable[..., Any]
) -> None:
    drive = drives[family]
    requests = drive.family.requests
    plain, packed = (
        drive.run(requests, make_knobs(kv_tokens=8192, kv_dtype=dtype)) for dtype in ("auto", "fp8")
    )
    errors = []
    for name, trace in plain.items():
        expected, found = trace[0][1], packed[name][0][1]
        kept = np.isfinite(expected)
        errors.append(np.linalg.norm(found[kept] - expected[kept]) / np.linalg.norm(expected[kept]))
    assert 1e-4 < np.median(errors) < BOUND, "under it the cache holds what the model gave"


@pytest.mark.parametrize("family", ["pictures", "sounds", "captions"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_answers_are_independent_of_the_schedule(
    family: str,
    schedule: dict[str, Any],
    drives: Any,
    make_knobs: Callable[..., Any],
    renamed: Callable[..., Any],
) -> None:
    """A key on the border between two values may fall to either side, so the bound is that of one value."""
    drive = drives[family]
    requests = [r for r in drive.family.requests if r.sampling.num_sequences == 1][:5]
    alone = make_knobs(reuse=False, kv_dtype="fp8")
    expected = [drive.run([request], alone)[request.request_id] for request in requests]
    asked = [renamed(request, f"q{n}") for n, request in enumerate((*requests, *requests))]
    traces = drive.run(asked, make_knobs(**schedule, kv_dtype="fp8"))
    for n in range(len(asked)):
        reference = expected[n % len(requests)]
        assert [token for token, _ in traces[f"q{n}"]] == [token for token, _ in reference]
        for (_, found), (_, logits) in zip(traces[f"q{n}"], reference, strict=True):
            kept = np.isfinite(logits)
            assert np.abs(found[kept] - logits[kept]).max() <= 1e-2 * np.abs(logits[kept]).max()


@torch.no_grad()
def test_keys_of_several_hundred_are_not_cut(drives: Any) -> None:
    """As a bias of the key product makes them; over a scale of 1 they would all be 448."""
    decoder = drives["pictures"].family.model.decoder
    bias = decoder.layers[0].attn.qkv.bias
    before = bias.clone()
    try:
        bias[decoder.layers[0].attn.qkv.shards("bias")["k"]] += 900.0
        scales = find_scales(decoder, 16)
    finally:
        bias.copy_(before)
    assert (448 * scales[0, 0] > 1000.0).all()
    assert (448 * scales[1:] < 500.0).all()
