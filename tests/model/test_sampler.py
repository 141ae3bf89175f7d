"""Sampling: exact greedy, the right distribution, and draws that depend on nothing but their own row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mmcore.adapter import LogitsEdit
from mmcore.model.logits_edit import RowEdit
from mmcore.model.sampler import SamplingBatch, sample, split_mix_, token_scores

CPU = torch.device("cpu")
INF = math.inf


def batch(rows: int, edits: Sequence[RowEdit] = (), **columns: Any) -> SamplingBatch:
    defaults = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 0, "position": 0}
    filled = {name: columns.get(name, value) for name, value in defaults.items()}
    lists = {k: list(v) if isinstance(v, Sequence | range) else [v] * rows for k, v in filled.items()}
    return SamplingBatch.of(device=CPU, edits=edits, **lists)


def noise(rows: int, width: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))


def test_greedy_is_the_largest_logit() -> None:
    logits = noise(50, 1000)
    assert torch.equal(sample(logits.clone(), batch(50, temperature=0.0)), logits.argmax(1))


def test_greedy_rows_stay_exact_beside_sampled_ones() -> None:
    logits = noise(40, 100)
    ids = sample(logits.clone(), batch(40, temperature=[0.0, 1.5] * 20, top_k=3))
    assert torch.equal(ids[::2], logits.argmax(1)[::2])


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("vary", ["seed", "position"])
def test_frequencies_are_the_softmax(temperature: float, vary: str) -> None:
    """Pearson's statistic over 20,000 draws lies under its 99.99 % point for 9 degrees of freedom."""
    logits, draws = noise(1, 10), 20_000
    ids = sample(
        logits.expand(draws, -1).clone(),
        batch(draws, temperature=temperature, **cast(dict[str, Any], {vary: range(draws)})),
    )
    expected = (logits[0] / temperature).softmax(0) * draws
    seen = torch.bincount(ids, minlength=10)
    assert float(((seen - expected) ** 2 / expected).sum()) < 33.72


def test_neighbouring_draws_are_uncorrelated() -> None:
    """Two tokens of probability one half: successive positions agree half of the time, within 5 sigma."""
    count = 20_000
    ids = sample(torch.zeros(count, 2), batch(count, position=range(count)))
    agreement = float((ids[1:] == ids[:-1]).float().mean())
    assert abs(agreement - 0.5) < 5 * 0.5 / math.sqrt(count)


@settings(max_examples=40)
@given(data=st.data())
def test_a_row_does_not_see_its_neighbours(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 6))
    columns: dict[str, Any] = {
        "temperature": data.draw(st.lists(st.sampled_from([0.0, 0.3, 1.0]), min_size=rows, max_size=rows)),
        "top_k": data.draw(st.lists(st.sampled_from([0, 1, 5]), min_size=rows, max_size=rows)),
        "top_p": data.draw(st.lists(st.sampled_from([1.0, 0.5]), min_size=rows, max_size=rows)),
        "seed": data.draw(st.lists(st.integers(0, 2**63 + 127), min_size=rows, max_size=rows)),
        "position": data.draw(st.lists(st.integers(0, 5000), min_size=rows, max_size=rows)),
    }
    logits = noise(rows, 30, seed=rows)
    together = sample(logits.clone(), batch(rows, **columns))
    for row in range(rows):
        alone = sample(logits[row : row + 1].clone(), batch(1, **{k: v[row] for k, v in columns.items()}))
        assert alone.item() == together[row].item()


@pytest.mark.parametrize(
    ("top_k", "top_p", "kept"), [(3, 1.0, 3), (0, 0.6, 2), (1, 0.9, 1), (2, 0.95, 2), (50, 1.0, 5)]
)
def test_only_the_nucleus_is_drawn(top_k: int, top_p: float, kept: int) -> None:
    logits = torch.tensor([0.1, 0.4, 0.05, 0.3, 0.15]).log().expand(4000, -1).clone()
    ids = sample(logits, batch(4000, top_k=top_k, top_p=top_p, position=range(4000)))
    assert set(ids.tolist()) == {1, 3, 4, 0, 2} if kept == 5 else set([1, 3, 4, 0, 2][:kept])


def test_top_p_counts_what_top_k_left() -> None:
    """Of 0.4 and 0.3 the first alone is 0.57 of the rest: 0.5 keeps one, 0.6 keeps two."""
    logits = torch.tensor([0.1, 0.4, 0.05, 0.3, 0.15]).log().expand(500, -1)
    one = sample(logits.clone(), batch(500, top_k=2, top_p=0.5, position=range(500)))
    two = sample(logits.clone(), batch(500, top_k=2, top_p=0.6, position=range(500)))
    assert (set(one.tolist()), set(two.tolist())) == ({1}, {1, 3})


@pytest.mark.parametrize("temperature", [1e-30, 1e-7, 100.0])
def test_extreme_temperatures_give_ids(temperature: float) -> None:
    logits = 30 * noise(200, 50)
    ids = sample(logits.clone(), batch(200, temperature=temperature, top_p=0.9, position=range(200)))
    assert bool(((ids >= 0) & (ids < 50)).all())
    assert torch.equal(ids, logits.argmax(1)) == (temperature < 1.0)


def test_a_banned_token_is_never_drawn() -> None:
    logits = torch.zeros(2000, 3)
    edits = [RowEdit(row, LogitsEdit(banned=(0, 2))) for row in range(2000)]
    assert set(sample(logits, batch(2000, edits, position=range(2000))).tolist()) == {1}


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (LogitsEdit(allowed=(1, 3)), [-INF, 2.0, -INF, 0.0]),
        (LogitsEdit(allowed=(1, 3), banned=(1,)), [-INF, -INF, -INF, 0.0]),
        (LogitsEdit(banned=(0, 99)), [-INF, 2.0, 1.0, 0.0]),
        (LogitsEdit(banned_spans=((0, 1), (2, 99))), [-INF, 2.0, -INF, -INF]),
        (LogitsEdit(banned_spans=((-3, 2), (3, 3))), [-INF, -INF, 1.0, 0.0]),
        (LogitsEdit(banned_spans=((3, 4),), prefer=(1, 4)), [3.0, 2.0, 1.0, -INF]),
        (LogitsEdit(allowed=(2, 99)), [-INF, -INF, 1.0, -INF]),
        (LogitsEdit(bias=((3, 1.5), (3, 1.0), (99, 1.0))), [3.0, 2.0, 1.0, 2.5]),
        (LogitsEdit(prefer=(1, 4)), [3.0, 2.0, 1.0, 0.0]),
        (LogitsEdit(prefer=(1, 4), bias=((1, 1.0),)), [-INF, 3.0, 1.0, 0.0]),
        (LogitsEdit(prefer=(0, 1)), [3.0, -INF, -INF, -INF]),
    ],
)
def test_edits(edit: LogitsEdit, expected: list[float]) -> None:
    """log(e2 + e1 + e0) = 2.41 < 3: the range [1, 4) is not yet likelier than id 0. Row 0 is untouched."""
    logits = torch.tensor([[3.0, 2.0, 1.0, 0.0]] * 2)
    sample(logits, batch(2, [RowEdit(1, edit)], temperature=0.0))
    assert logits.tolist() == [[3.0, 2.0, 1.0, 0.0], expected]


def test_scores_are_logit_and_log_probability() -> None:
    logits = noise(5, 20)
    ids = logits.argmax(1)
    chosen, logprob = token_scores(logits, ids)
    assert torch.equal(chosen, logits.max(1).values)
    torch.testing.assert_close(logprob, logits.log_softmax(1).max(1).values)


def test_the_hash_is_split_mix() -> None:
    """The generator's first three outputs for state 0."""
    bits = split_mix_(torch.arange(3)).tolist()
    assert [value % 2**64 for value in bits] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
