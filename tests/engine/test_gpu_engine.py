"""The engine on a GPU: the CPU's tokens in float32, a batch equal to its parts, half precision sound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mmcore_qwen2vl.testing
import mmcore_whisper.testing
import pytest
import torch

from mmcore import LLM, KvCacheConfig, SamplingParams
from mmcore.config import Device, Dtype

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

PARAMS = SamplingParams(max_tokens=24, ignore_eos=True)
CACHE = KvCacheConfig(max_tokens=16_384)


@pytest.fixture(scope="module", params=["pictures", "sounds"])
def folder_and_prompts(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    make_picture: Callable[..., Any],
    make_sound: Callable[..., Any],
) -> tuple[Path, list[Any]]:
    """Heads of 64 and enough prompts for a mixed batch."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "sounds":
        mmcore_whisper.testing.write_tiny_checkpoint(folder, width=256, heads=4, intermediate=512, rows=100)
        sounds = [make_sound(seed, 0.5 + 0.1 * seed) for seed in range(12)]
        return folder, [{"prompt": "", "multi_modal_data": {"audio": [sound]}} for sound in sounds]
    mmcore_qwen2vl.testing.write_tiny_checkpoint(folder, hidden=256, heads=4, kv_heads=2, intermediate=512)
    pictures = [make_picture(seed, 56 + 28 * (seed % 4), 84) for seed in range(12)]
    return folder, [
        {"prompt": f"What is picture {n}?", "multi_modal_data": {"image": [pictures[n], pictures[n // 2]]}}
        for n in range(12)
    ]


def answers(folder: Path, prompts: list[Any], device: Device, dtype: Dtype, **options: Any) -> list[Any]:
    with LLM(folder, device=device, dtype=dtype, kv_cache_config=CACHE, **options) as llm:
        outputs = llm.generate(prompts, PARAMS, use_tqdm=False)
    return [output.token_ids for output in outputs]


def shared(first: Sequence[int], second: Sequence[int]) -> int:
    """Tokens before the first that differs."""
    pairs = enumerate(zip(first, second, strict=True))
    return next((n for n, (a, b) in pairs if a != b), len(first))


def test_float32_tokens_are_those_of_the_cpu(folder_and_prompts: tuple[Path, list[Any]]) -> None:
    folder, prompts = folder_and_prompts
    expected = answers(folder, prompts, "cpu", "float32")
    assert answers(folder, prompts, "cuda", "float32") == expected
    assert answers(folder, prompts, "cuda", "float32", max_num_tokens=37, max_batch_size=5) == expected


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_answers_everything(folder_and_prompts: tuple[Path, list[Any]], dtype: Dtype) -> None:
    """Tokens may differ where rounding breaks a near tie; most of each answer's start is the same."""
    folder, prompts = folder_and_prompts
    expected = answers(folder, prompts, "cpu", "float32")
    found = answers(folder, prompts, "cuda", dtype)
    assert all(len(ids) == PARAMS.max_tokens for ids in found)
    assert sum(a[0] == b[0] for a, b in zip(found, expected, strict=True)) >= 0.75 * len(expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_graphs_and_overlap_change_no_token(folder_and_prompts: tuple[Path, list[Any]], dtype: Dtype) -> None:
    """Several sizes of the ladder, padded and exact; every decode step came out of a capture.

    In half precision the wider block tables of a capture cut sums elsewhere, and near ties fall otherwise:
    from there on an answer is another one.
    """
    folder, prompts = folder_and_prompts
    same, total = 0, 0
    with LLM(folder, device="cuda", dtype=dtype, kv_cache_config=CACHE) as llm:
        engine, runner = llm._engine, llm._engine._runner
        assert engine._depth == 1
        for count in (1, 3, 12):
            captured = llm.generate(prompts[:count], PARAMS, use_tqdm=False)
            assert runner.graphs is not None
            assert runner.graphs.failure is None
            assert runner._encoder.graphs.failure is None
            assert runner.graphs._graphs
            graphs, runner.graphs, engine._depth = runner.graphs, None, 0
            eager = llm.generate(prompts[:count], PARAMS, use_tqdm=False)
            runner.graphs, engine._depth = graphs, 1
            same += sum(shared(a.token_ids, b.token_ids) for a, b in zip(captured, eager, strict=True))
            total += sum(len(output.token_ids) for output in captured)
    assert same >= (1.0 if dtype == "float32" else 0.5) * total, (same, total)


def test_sampled_tokens_are_those_of_eager_steps(folder_and_prompts: tuple[Path, list[Any]]) -> None:
    folder, prompts = folder_and_prompts
    params = SamplingParams(max_tokens=16, ignore_eos=True, temperature=0.8, top_k=20, seed=3)
    with LLM(folder, device="cuda", dtype="float32", kv_cache_config=CACHE) as llm:
        captured = llm.generate(prompts, params, use_tqdm=False)
        llm._engine._runner.graphs = None
        eager = llm.generate(prompts, params, use_tqdm=False)
    assert [o.token_ids for o in captured] == [o.token_ids for o in eager]


def test_a_float8_cache_answers_as_on_the_cpu(folder_and_prompts: tuple[Path, list[Any]]) -> None:
    """Through captured steps; a key between two values may fall to either side."""
    folder, prompts = folder_and_prompts
    cache = CACHE.model_copy(update={"dtype": "fp8"})
    params = SamplingParams(max_tokens=4, ignore_eos=True)
    found = []
    for device in ("cpu", "cuda"):
        with LLM(folder, device=device, dtype="float32", kv_cache_config=cache) as llm:
            found.append([output.token_ids for output in llm.generate(prompts, params, use_tqdm=False)])
    assert sum(shared(a, b) for a, b in zip(*found, strict=True)) >= 0.9 * 4 * len(prompts), found


def test_memory_goes_by_the_free_fraction(folder_and_prompts: tuple[Path, list[Any]]) -> None:
    folder, prompts = folder_and_prompts
    with LLM(folder, device="cuda", kv_cache_config=KvCacheConfig(free_gpu_memory_fraction=0.1)) as llm:
        pool = llm._engine._runner._kv
        held = (pool.key.numel() + pool.value.numel()) * pool.key.element_size()
        total = torch.cuda.get_device_properties(0).total_memory
        allowed = total * torch.cuda.get_per_process_memory_fraction()  # processes share the card
        assert 0.05 * allowed < held < 0.1 * allowed
        assert llm.generate(prompts[:1], PARAMS, use_tqdm=False)[0].token_ids
