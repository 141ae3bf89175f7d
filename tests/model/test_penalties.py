"""Penalties, bias, bad words and filters against transformers' processors, or a naive loop where none is."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mmcore.model.sampler import SamplingBatch, sample
from mmcore.request import PreparedRequest
from mmcore.runner.row_options import RowOptions
from mmcore.sampling_params import SamplingParams

transformers = pytest.importorskip("transformers")
CPU = torch.device("cpu")
V = 40

ids = st.integers(0, V - 1)
words = st.lists(st.lists(ids, min_size=1, max_size=3), max_size=4)


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "repetition_penalty": draw(st.sampled_from([None, 1.0, 0.5, 1.7])),
        "presence_penalty": draw(st.sampled_from([None, 0.0, -0.5, 1.5])),
        "frequency_penalty": draw(st.sampled_from([None, 0.0, -0.3, 0.7])),
        "logit_bias": draw(st.one_of(st.none(), st.dictionaries(st.integers(0, V + 3), st.floats(-9, 9)))),
        "bad_token_ids": draw(words),
    }


def request(prompt: list[int], asked: dict[str, Any]) -> PreparedRequest:
    params = SamplingParams(**asked)
    return PreparedRequest(
        request_id="r",
        token_ids=tuple(prompt),
        sampling=params,
        root_key=b"",
        bad_words=params.bad_token_ids,
    )


def naive(logits: Tensor, prompt: list[int], answer: list[int], asked: dict[str, Any]) -> Tensor:
    """One row, one token at a time; repetition and bad words by transformers' processors."""
    row = logits.clone().unsqueeze(0)
    for token, value in (asked["logit_bias"] or {}).items():
        if token < V:
            row[0, token] += value
    seen = torch.tensor([prompt + answer])
    row = transformers.RepetitionPenaltyLogitsProcessor(asked["repetition_penalty"] or 1.0)(seen, row)
    for token in set(answer):
        row[0, token] -= answer.count(token) * (asked["frequency_penalty"] or 0.0)
        row[0, token] -= asked["presence_penalty"] or 0.0
    if asked["bad_token_ids"]:
        row = transformers.NoBadWordsLogitsProcessor(asked["bad_token_ids"], eos_token_id=None)(seen, row)
    result: Tensor = row[0]
    return result


def noise(rows: int, seed: int) -> Tensor:
    return 3 * torch.randn(rows, V, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=40)
@given(data=st.data())
def test_rows_equal_the_reference_whatever_is_beside_them(data: st.DataObject) -> None:
    """Slots come and go between steps; each step's tokens are recorded on the device."""
    table = RowOptions(V, CPU)
    live: dict[int, tuple[list[int], list[int], dict[str, Any]]] = {}
    for step in range(data.draw(st.integers(2, 6))):
        for slot in data.draw(st.sets(st.integers(0, 5))):
            if slot in live:
                table.remove(slot)
                del live[slot]
            else:
                prompt, asked = data.draw(st.lists(ids, min_size=1, max_size=5)), data.draw(options())
                table.add(slot, request(prompt, asked))
                live[slot] = (prompt, [], asked)
        slots = data.draw(st.permutations(sorted(live)))
        if not slots:
            continue
        before = noise(len(slots), step)
        after = before.clone()
        table.apply(after, slots)
        for row, slot in enumerate(slots):
            torch.testing.assert_close(after[row], naive(before[row], *live[slot]), rtol=1e-6, atol=1e-6)
        tokens = data.draw(st.lists(ids, min_size=len(slots), max_size=len(slots)))
        table.record(slots, torch.tensor(tokens))
        for slot, token in zip(slots, tokens, strict=True):
            live[slot][1].append(token)


@settings(max_examples=40)
@given(data=st.data())
def test_copied_slots_go_on_from_their_source(data: st.DataObject) -> None:
    table, asked = RowOptions(V, CPU), data.draw(options())
    prompt = [1, 2, 3]
    answers = {slot: data.draw(st.lists(ids, min_size=2, max_size=4)) for slot in range(3)}
    for slot, answer in answers.items():
        table.add(slot, request(prompt, asked))
        for token in answer:
            table.record([slot], torch.tensor([token]))
    sources = data.draw(st.lists(st.integers(0, 2), min_size=3, max_size=3))
    table.copy(sources, [0, 1, 2])
    before = noise(3, 1)
    after = before.clone()
    table.apply(after, [0, 1, 2])
    for row, source in enumerate(sources):
        expected = naive(before[row], prompt, answers[source], asked)
        torch.testing.assert_close(after[row], expected, rtol=1e-6, atol=1e-6)


# ------------------------------------------------------------------ filters


def kept_by_reference(logits: Tensor, temperature: float, top_k: int, top_p: float, min_p: float) -> set[int]:
    row = transformers.TemperatureLogitsWarper(temperature)(None, logits.unsqueeze(0))
    if top_k:
        row = transformers.TopKLogitsWarper(top_k)(None, row)
    if top_p < 1.0:
        row = transformers.TopPLogitsWarper(top_p)(None, row)
    if min_p:
        row = transformers.MinPLogitsWarper(min_p)(None, row)
    return set(torch.isfinite(row[0]).nonzero()[:, 0].tolist())


def drawn(logits: Tensor, draws: int, temperature: float, top_k: int, top_p: float, min_p: float) -> set[int]:
    batch = SamplingBatch.of(
        temperature=[temperature] * draws,
        top_k=[top_k] * draws,
        top_p=[top_p] * draws,
        min_p=[min_p] * draws,
        seed=[0] * draws,
        position=range(draws),
        device=CPU,
    )
    return set(sample(logits.expand(draws, -1).clone(), batch).tolist())


@settings(max_examples=80)
@given(
    seed=st.integers(0, 99),
    temperature=st.sampled_from([0.7, 1.0, 3.0]),
    top_k=st.sampled_from([0, 1, 3, 10, 99]),
    top_p=st.sampled_from([1.0, 0.9, 0.5, 0.05]),
    min_p=st.sampled_from([0.0, 0.02, 0.2, 1.0]),
)
def test_filters_keep_what_the_reference_keeps(
    seed: int, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    """Nothing outside is ever drawn, and the likeliest of what is kept are."""
    logits = noise(1, seed)[0]
    kept = kept_by_reference(logits, temperature, top_k, top_p, min_p)
    found = drawn(logits, 600, temperature, top_k, top_p, min_p)
    assert found <= kept
    probability = torch.full((V,), -math.inf)
    inside = torch.tensor(sorted(kept))
    probability[inside] = logits[inside] / temperature
    assert set((probability.softmax(0) > 0.03).nonzero()[:, 0].tolist()) <= found


@pytest.mark.parametrize("spread", [0.01, 1.0, 8.0])
@pytest.mark.parametrize("top_p", [0.02, 0.5, 0.97])
def test_a_prefix_of_a_large_vocabulary_gives_the_sorted_whole(
    monkeypatch: pytest.MonkeyPatch, spread: float, top_p: float
) -> None:
    """Flat rows need all of it, steep ones little; a row's draw is the same beside either."""
    logits = spread * torch.randn(6, 5000, generator=torch.Generator().manual_seed(2))
    columns: dict[str, Any] = {
        "temperature": [1.0] * 6,
        "top_k": [0, 0, 7, 0, 700, 0],
        "top_p": [top_p] * 6,
        "min_p": [0.0] * 6,
        "seed": list(range(6)),
        "position": [3] * 6,
    }
    fast = sample(logits.clone(), SamplingBatch.of(device=CPU, **columns))
    for row in range(6):
        one = SamplingBatch.of(device=CPU, **{name: [values[row]] for name, values in columns.items()})
        assert sample(logits[row : row + 1].clone(), one).tolist() == [fast[row]]
    monkeypatch.setattr("mmcore.model.sampler.PREFIX", 5000)
    assert torch.equal(fast, sample(logits.clone(), SamplingBatch.of(device=CPU, **columns)))


def test_of_equal_logits_the_lower_id_ranks_first() -> None:
    assert drawn(torch.zeros(V), 300, 1.0, 3, 1.0, 0.0) == {0, 1, 2}
