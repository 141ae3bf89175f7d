"""Where a repetition ends an answer: against the algorithm of facebookresearch/nougat, written out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mmcore_nougat.repetition import RepetitionStop, repetition_start
from mmcore_nougat.testing import TOKEN_IDS

from mmcore import SamplingParams
from mmcore.adapter import Generation

if TYPE_CHECKING:
    from tests.conftest import Subject


def original_stop(logits: Sequence[float]) -> int | None:
    """How many tokens come before the answer ends. Plain lists, everything computed anew at each token."""
    spreads: list[float] = []
    limit, stopped = 0, False
    for size in range(1, len(logits) + 1):
        last = torch.tensor(logits[max(0, size - 15) : size], dtype=torch.float64)
        spreads.append(float(torch.var(last) / len(last)) if size > 1 else math.nan)
        if size < 200:
            continue
        if float(torch.var(torch.tensor(spreads[-200:], dtype=torch.float64))) < 0.015:
            if limit > 0 and not stopped:
                stopped = limit >= size
            else:
                limit = int(min(size * 1.15 + 150 + 200, 4095))
        else:
            limit, stopped = 0, False
        if stopped:
            return size
    return None


def original_start(logits: Sequence[float]) -> int | None:
    values = np.array(logits)
    windows = [values[i : i + 15] for i in range(len(values) - 15)]
    var = np.array([np.var(s) / len(s) for s in windows])
    if len(var) < 10:
        return None
    backwards = var[::-1]
    varvar = np.array([np.var(backwards[: i + 10]) for i in range(len(var) - 10)][::-1])
    small = np.where(varvar < 0.045)[0]
    if len(small) < 2 or not np.all(np.diff(small) < 2):
        return None
    idx = int(min(max(small[0], 1) * 1.08 + 120, 4095))
    if idx / len(values) > 0.9:
        return None
    return 0 if small[0] < 30 else idx


@st.composite
def answers(draw: st.DrawFn) -> list[float]:
    """Logits that move, then hardly move, then perhaps move again."""
    rng = np.random.default_rng(draw(st.integers(0, 9999)))
    parts = draw(
        st.lists(
            st.tuples(st.integers(0, 350), st.sampled_from([0.0, 0.3, 1.0, 2.0, 4.0, 8.0])),
            min_size=1,
            max_size=4,
        )
    )
    loops = [
        np.resize(rng.standard_normal(int(rng.integers(1, 20))) * scale, length)
        + rng.standard_normal(length) * 0.05
        for length, scale in parts
    ]
    return [float(value) for value in np.concatenate(loops)]


@given(logits=answers())
@settings(max_examples=30)
def test_an_answer_ends_where_the_original_ends_it(logits: list[float]) -> None:
    rule = RepetitionStop()
    found = next((n for n, logit in enumerate(logits, start=1) if rule.observe(5, logit, -0.1)), None)
    assert found == original_stop(logits)


@given(logits=answers())
@settings(max_examples=30)
def test_the_repetition_starts_where_the_original_says(logits: list[float]) -> None:
    assert repetition_start(logits) == original_start(logits)


def test_both_are_found_among_the_answers() -> None:
    """Else the equality above would say little."""
    moving = np.random.default_rng(0).standard_normal(300) * 8
    stuck = [*moving, *([3.0] * 700)]
    rule = RepetitionStop()
    end = next(n for n, logit in enumerate(stuck, start=1) if rule.observe(5, logit, -0.1))
    assert end == original_stop(stuck)
    assert repetition_start(stuck) == original_start(stuck) is not None
    assert repetition_start([3.0] * 400) == 0
    assert repetition_start([3.0] * 20) is None


def test_a_very_long_answer_is_left_to_the_context() -> None:
    rule = RepetitionStop()
    spread = np.random.default_rng(0).standard_normal(4200) * 30
    assert not any(rule.observe(5, float(logit), -0.1) for logit in spread)
    assert not any(rule.observe(5, 1.0, -0.1) for _ in range(600))


LONG = SamplingParams(max_tokens=400, ignore_eos=True)


def answer(papers: Subject, seed: int, params: SamplingParams = LONG, **options: Any) -> Any:
    image = np.random.default_rng(seed).integers(0, 256, (80, 60, 3), np.uint8)
    prompt = {"prompt": "", "multi_modal_data": {"image": image}, "decoder_options": options}
    return papers.llm.generate(prompt, params, use_tqdm=False).outputs[0]


def test_an_answer_of_the_engine_ends_when_it_repeats_itself(papers: Subject) -> None:
    """The tiny checkpoint says the same over and over again."""
    found = answer(papers, 3)
    assert (found.stop_reason, found.finish_reason) == ("stop_rule", "stop")
    assert 200 < len(found.token_ids) < 400
    assert found.fields["repeats"] == 0
    assert found.text.strip() == ""
    whole = answer(papers, 3, stop_repetitions=False, text="raw")
    assert len(whole.token_ids) == 400
    assert whole.token_ids[: len(found.token_ids)] == found.token_ids
    assert whole.fields["repeats"] is None
    assert whole.text


@pytest.mark.parametrize(
    ("form", "wanted"),
    [
        ("raw", "# Title\n\nsee https://a.bc/d"),
        ("mathpix", "\n\n# Title\n\nsee https://a.bc/d"),
        ("markdown", "\n\n# Title\n\nsee [https://a.bc/d](https://a.bc/d)"),
    ],
)
def test_the_text_is_what_was_asked_for(papers: Subject, form: str, wanted: str) -> None:
    image = np.zeros((80, 60, 3), np.uint8)
    prompt = {"prompt": "", "multi_modal_data": {"image": image}, "decoder_options": {"text": form}}
    request = papers.llm.preprocess(prompt)
    text = "# Title\n\nsee https://a.bc/d"
    ids = papers.adapter.decoding.tokenizer.encode(text, special_tokens=False)  # type: ignore[attr-defined]
    result = papers.adapter.decoding.finish(
        Generation(request=request, ids=(*ids, TOKEN_IDS["</s>"]), text=text)
    )
    assert (result.text, dict(result.fields)) == (wanted, {"repeats": None})
