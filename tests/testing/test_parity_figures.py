"""How far each family's logits lie from its reference: whole rows, of 60 generated conversations a variant.

``pytest -s -m slow tests/testing/test_parity_figures.py`` prints the figures.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from torch import Tensor

from mmcore.engine import Engine
from mmcore.plugins import load_plugins
from mmcore.testing.answers import Room
from mmcore.testing.laws.parity import RELATIVE, prompt_of, referred
from mmcore.testing.lookup import find_family, open_case
from mmcore.testing.samples import Ask
from mmcore.testing.subject import Subject

EXAMPLES = 60
ROOM = Room(max_num_tokens=48)
"""So little that prompts are cut in chunks."""


def record_rows(engine: Engine) -> list[Tensor]:
    """Fills with each row of logits that a token is chosen from, [vocabulary]; what is banned is -inf."""
    rows: list[Tensor] = []
    sampling: Any = engine._runner._sampling
    sample = sampling.sample
    sampling.is_plain = lambda inputs: False  # so that all logits come by here

    def recorded(logits: Tensor, inputs: Any, table: Any) -> Any:
        sampled = sample(logits, inputs, table)
        rows.extend(logits[: len(inputs.sample_slots)].clone())
        return sampled

    sampling.sample = recorded
    return rows


def difference(subject: Subject, rows: list[Tensor], ask: Ask) -> float:
    """Of the logits that are not banned, relative to the largest; the tokens must be the reference's."""
    request = subject.prepared(ask)
    rows.clear()
    (output,) = subject.first_links([request], ROOM)
    wanted = subject.reference.logits(prompt_of(request), ask.media, output.token_ids).float()
    found = torch.stack(rows)
    allowed = found.isfinite()
    assert list(output.token_ids) == wanted.masked_fill(~allowed, -torch.inf).argmax(1).tolist()
    return float((found - wanted)[allowed].abs().max() / wanted.abs().max())


def worst_of(subject: Subject) -> float:
    """Over all generated conversations."""
    worst, rows = 0.0, record_rows(subject.engine(ROOM))

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(ask=referred(subject))
    def tried(ask: Ask) -> None:
        nonlocal worst
        worst = max(worst, difference(subject, rows, ask))

    tried()
    return worst


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llava", "nvila", "blip2", "qwen2vl", "nougat", "whisper"])
def test_tokens_are_equal_and_logits_close(name: str, tmp_path: Path) -> None:
    info, family = find_family(load_plugins(), name)
    for case in [case for case in family.cases if case.reference is not None]:
        with open_case(info, family, case, tmp_path / case.name) as subject:
            worst = worst_of(subject)
        print(f"\n{name} {case.name}: {EXAMPLES} cases, {worst:.1e}")
        assert 0 < worst <= RELATIVE
