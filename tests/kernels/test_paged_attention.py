"""``paged_attention`` on the CPU and in Triton's interpreter, against the written-out reference."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcore.errors import CheckpointError, EngineError
from mmcore.kernels.paged_attention import paged_attention, paged_attention_reference

LAUNCH = "mmcore.kernels.paged_attention_launch"


@st.composite
def row_lists(draw: st.DrawFn, longest: int = 70, rows: int = 6) -> list[tuple[int, int]]:
    """(tokens of this step, context): decode, whole prompts, chunks, rows without tokens or context."""
    found = []
    for _ in range(draw(st.integers(1, rows))):
        context = draw(st.integers(0, longest))
        kind = draw(st.sampled_from(["decode", "whole", "chunk", "absent"]))
        count = {"decode": 1, "whole": context, "chunk": draw(st.integers(0, context)), "absent": 0}[kind]
        found.append((count, max(context, count)))
    return found


heads = st.sampled_from([(4, 4), (6, 2), (7, 1), (8, 2)])
sizes = st.sampled_from([4, 16, 20])


def reference(batch: Any, scale: float, causal: bool = True, bias: Any = None) -> torch.Tensor:
    truth: torch.Tensor = batch.call(paged_attention_reference, scale, causal, bias=bias)
    return truth


@given(
    rows=row_lists(),
    heads=heads,
    size=sizes,
    block=st.sampled_from([1, 4, 16]),
    adjoin=st.booleans(),
    seed=st.integers(0, 2**31),
)
@pytest.mark.parametrize("variant", ["causal", "cross", "bias"])
def test_cpu_equals_reference(
    make_batch: Any,
    variant: str,
    rows: list[tuple[int, int]],
    heads: tuple[int, int],
    size: int,
    block: int,
    adjoin: bool,
    seed: int,
) -> None:
    batch = make_batch(rows, heads, size, block, seed=seed, adjoin=adjoin)
    bias = torch.randn(heads[0], 9) if variant == "bias" else None
    causal, scale = variant != "cross", size**-0.5
    out = torch.full_like(batch.query, torch.nan)
    result = batch.call(paged_attention, scale, causal, max_query_len=batch.max_query_len, bias=bias, out=out)
    assert result is out
    torch.testing.assert_close(result, reference(batch, scale, causal, bias), rtol=0, atol=2e-6)


@given(lens=st.lists(st.integers(1, 300), min_size=2, max_size=12), seed=st.integers(0, 2**31))
@settings(max_examples=30)
def test_a_row_does_not_depend_on_its_batch(make_batch: Any, lens: list[int], seed: int) -> None:
    batch = make_batch([(1, n) for n in lens], (4, 2), 32, 16, seed=seed)
    whole = batch.call(paged_attention, 32**-0.5, max_query_len=1)
    for row in range(len(lens)):
        alone = paged_attention(
            batch.query[row : row + 1],
            batch.key_cache,
            batch.value_cache,
            batch.block_tables[row : row + 1],
            torch.tensor([0, 1], dtype=torch.int32),
            batch.context_lens[row : row + 1],
            32**-0.5,
            max_query_len=1,
        )
        torch.testing.assert_close(whole[row : row + 1], alone, rtol=0, atol=1e-6)


def test_a_prompt_in_chunks_equals_the_whole(make_batch: Any) -> None:
    batch = make_batch([(50, 50)], (4, 2), 16, 4, seed=3)
    whole = batch.call(paged_attention, 0.25, max_query_len=50)
    for begin, end in ((0, 7), (7, 8), (8, 31), (31, 50)):
        chunk = paged_attention(
            batch.query[begin:end],
            batch.key_cache,
            batch.value_cache,
            batch.block_tables,
            torch.tensor([0, end - begin], dtype=torch.int32),
            torch.tensor([end], dtype=torch.int32),
            0.25,
            max_query_len=end - begin,
        )
        torch.testing.assert_close(chunk, whole[begin:end], rtol=0, atol=2e-6)


@given(
    rows=row_lists(longest=150, rows=4),
    heads=heads,
    size=st.sampled_from([16, 20, 80]),
    block=st.sampled_from([4, 16]),
    splits=st.sampled_from([None, 2, 3]),
    one_token=st.booleans(),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=6)
@pytest.mark.parametrize("variant", ["causal", "cross", "bias"])
def test_kernel_in_interpreter_equals_reference(
    make_batch: Any,
    interpreter: Any,
    variant: str,
    rows: list[tuple[int, int]],
    heads: tuple[int, int],
    size: int,
    block: int,
    splits: int | None,
    one_token: bool,
    seed: int,
) -> None:
    if one_token:
        rows = [(min(count, 1), context) for count, context in rows]
    batch = make_batch(rows, heads, size, block, seed=seed)
    bias = torch.randn(heads[0], 9) if variant == "bias" else None
    causal, scale = variant != "cross", size**-0.5
    out = torch.full_like(batch.query, torch.nan)
    result, _ = interpreter.call(
        LAUNCH, "paged_attention_triton", *batch.arrays(), scale, causal,
        max_query_len=batch.max_query_len, bias=bias, splits=splits, out=out,
    )  # fmt: skip
    torch.testing.assert_close(result, reference(batch, scale, causal, bias), rtol=0, atol=4e-6)


@pytest.mark.parametrize("splits", [1, 4])
def test_kernel_in_interpreter_half_precision(
    make_batch: Any, interpreter: Any, assert_within_twice: Any, splits: int
) -> None:
    batch = make_batch(
        [(1, 200), (1, 3), (1, 64), (20, 33)], (7, 1), 72, 16, seed=splits, dtype=torch.float16
    )
    result, _ = interpreter.call(
        LAUNCH, "paged_attention_triton", *batch.arrays(), 0.1, True, max_query_len=20, splits=splits
    )
    assert_within_twice(result, reference(batch, 0.1), reference(batch.cast(torch.float32), 0.1))


def test_the_launcher_reaches_the_kernel(make_batch: Any, interpreter: Any) -> None:
    batch = make_batch([(1, 20)], (2, 1), 16, 16, seed=0)
    result, _ = interpreter.call(
        "mmcore.kernels.paged_attention", "paged_attention", *batch.arrays(), 0.25, max_query_len=1
    )
    torch.testing.assert_close(result, reference(batch, 0.25), rtol=0, atol=2e-6)


@pytest.mark.parametrize("rows", [[(1, 20), (1, 33)], [(5, 20), (1, 3), (0, 1)]])
def test_a_float8_cache_stands_for_its_values_times_their_scales(
    make_batch: Any, rows: list[tuple[int, int]]
) -> None:
    batch = make_batch(rows, (4, 2), 16, 4, seed=5)
    query, keys, values, *rest = batch.arrays()
    scales = torch.tensor([[0.02, 0.5], [0.1, 0.03]])
    packed = [(x / s[:, None]).to(torch.float8_e4m3fn) for x, s in zip((keys, values), scales, strict=True)]
    plain = [x.float() * s[:, None] for x, s in zip(packed, scales, strict=True)]
    options: Any = {"max_query_len": batch.max_query_len}
    wanted = paged_attention(*(query, *plain, *rest, 0.25), **options)
    got = paged_attention(*(query, *packed, *rest, 0.25), **options, scales=scales)
    torch.testing.assert_close(got, wanted, rtol=0, atol=0)
    with pytest.raises(EngineError, match="2 KV heads"):
        paged_attention(*(query, *packed, *rest, 0.25), **options, scales=scales[:1])


@pytest.mark.parametrize("splits", [None, 3])
def test_kernel_in_interpreter_reads_a_float8_cache(
    make_batch: Any, interpreter: Any, assert_within_twice: Any, splits: int | None
) -> None:
    """Keys and values in steps of e4m3, of either sign, below its normal numbers and at its largest."""
    batch = make_batch([(1, 70), (5, 40), (1, 3)], (4, 2), 36, 16, seed=7).cast(torch.float16)
    query, keys, values, *rest = batch.arrays()
    scales = torch.tensor([[0.02, 0.005], [0.1, 0.03]])
    packed = [
        (x.float().nan_to_num() / s[:, None]).clamp(-448, 448).to(torch.float8_e4m3fn)
        for x, s in zip((keys, values), scales, strict=True)
    ]
    arguments = query, *packed, *rest, 0.2
    as_bytes = query, *(x.view(torch.uint8) for x in packed), *rest, 0.2  # torch pickles no float8
    got, _ = interpreter.call(
        LAUNCH, "paged_attention_triton", *as_bytes, True, max_query_len=5, scales=scales, splits=splits
    )
    plain = paged_attention_reference(*arguments, scales=scales)
    truth = paged_attention_reference(query.float(), *arguments[1:], scales=scales)
    assert_within_twice(got, plain, truth)


def test_misfits_are_named(make_batch: Any, interpreter: Any) -> None:
    batch = make_batch([(1, 3), (2, 2)], (4, 2), 8, 4, seed=0)
    query, keys, values, tables, starts, lens = batch.arrays()
    with pytest.raises(EngineError, match="multiple of KV heads"):
        paged_attention(query[:, :3], keys, values, tables, starts, lens, 1.0, max_query_len=2)
    with pytest.raises(EngineError, match="wanted R, R and R"):
        paged_attention(query, keys, values, tables, starts[:-1], lens, 1.0, max_query_len=2)
    with pytest.raises(EngineError, match="needs causal=True"):
        paged_attention(
            query, keys, values, tables, starts, lens, 1.0, False, max_query_len=2, bias=torch.zeros(4, 2)
        )
    large = make_batch([(1, 3)], (1, 1), 264, 4, seed=0)
    with pytest.raises(CheckpointError, match="head size 264 is above 256"):
        interpreter.call(LAUNCH, "paged_attention_triton", *large.arrays(), 1.0, True, max_query_len=1)
