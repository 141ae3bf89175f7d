"""Every installed family on a GPU in half precision: the answers are those of float32, but for ties.

A wrong answer is one whose first other token stood clearly behind in float32. How clearly, is a property of
the dtype: the tiny models' random layers pass a rounding error on without damping it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings

from mmcore import LLM, KvCacheConfig, SamplingParams
from mmcore.config import Device, Dtype
from mmcore.plugins import load_plugins
from mmcore.testing.lookup import find_family
from mmcore.testing.samples import Ask, asks
from mmcore.testing.subject import Subject

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

COUNT = 40
PARAMS = SamplingParams(max_tokens=6, ignore_eos=True, temperature=0.0, logprobs=4)
CACHE = KvCacheConfig(max_tokens=16_384)
TIES: dict[Dtype, float] = {"bfloat16": 0.25, "float16": 0.03}
"""By how much the logarithm of a probability may be off."""
PARTED: dict[Dtype, float] = {"bfloat16": 0.4, "float16": 0.1}
"""Share of answers that near ties may change: the tiny models are undecided at every tenth token."""


def adapters() -> list[str]:
    return [info.name for info in load_plugins().inventory.adapters if info.testing]


def generated(subject: Subject) -> list[Ask]:
    """The same ones each time."""
    found: list[Ask] = []

    @settings(
        max_examples=COUNT,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(asks(subject))
    def collect(ask: Ask) -> None:
        found.append(ask)

    collect()
    return found


def answers(folder: Path, chats: Sequence[Any], device: Device, dtype: Dtype) -> list[Any]:
    with LLM(folder, device=device, dtype=dtype, kv_cache_config=CACHE, max_batch_size=8) as llm:
        return [output.outputs[0] for output in llm.chat(chats, PARAMS, use_tqdm=False)]


def lead(expected: Any, found: Any) -> float | None:
    """Of the token of float32 over the one found, where the two answers part; None where they never do."""
    for place, (ours, theirs) in enumerate(zip(expected.token_ids, found.token_ids, strict=True)):
        if ours != theirs:
            scores = expected.logprobs[place]
            return float(scores[ours].logprob - scores[theirs].logprob) if theirs in scores else float("inf")
    return None


@pytest.mark.parametrize("adapter", adapters())
def test_half_precision_gives_the_tokens_of_float32(adapter: str, tmp_path: Path) -> None:
    info, family = find_family(load_plugins(), adapter, None)
    leads: dict[Dtype, list[float | None]] = {dtype: [] for dtype in TIES}
    for number, case in enumerate(family.cases):
        with Subject.open(info, family, case, tmp_path / str(number)) as subject:
            chats = [ask.messages() for ask in generated(subject)]
            expected = answers(subject.folder, chats, "cuda", "float32")
            for dtype in TIES:
                if dtype in subject.adapter.dtypes:
                    found = answers(subject.folder, chats, "cuda", dtype)
                    leads[dtype] += [lead(*pair) for pair in zip(expected, found, strict=True)]
    for dtype, each in leads.items():
        apart = sorted(one for one in each if one is not None)
        print(f"{adapter}, {dtype}: {len(apart)} of {len(each)} answers part, by {apart[-3:]} at most")
        assert all(one <= TIES[dtype] for one in apart), (dtype, apart)
        assert len(apart) <= PARTED[dtype] * len(each), (dtype, len(apart), len(each))
