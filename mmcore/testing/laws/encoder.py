"""The encoder: an item's rows are its own, and numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as st

from mmcore.request import DecodedMedia, ItemPlan, MediaInfo
from mmcore.testing.law import law
from mmcore.testing.laws.rows import encoded, measured, preprocessed, some_media
from mmcore.testing.samples import Medium, Sound, media
from mmcore.testing.subject import Subject

RELATIVE = 1e-5


@law(needs=("measure_counts_rows", "preprocess_is_pure"), items=some_media)
def rows_are_the_item_s_own(subject: Subject, items: list[Medium]) -> None:
    """An item has the same rows alone, behind another and before it."""
    plans = measured(subject, items)
    alone = [_rows(subject, [item], (plan,)) for item, plan in zip(items, plans, strict=True)]
    for order in (range(len(items)), range(len(items) - 1, -1, -1)):
        rows = _rows(subject, [items[i] for i in order], tuple(plans[i] for i in order))
        parts = torch.split(rows, [plans[i].rows for i in order])
        for i, part in zip(order, parts, strict=True):
            error = (part - alone[i]).abs().max() / alone[i].abs().max().clamp(min=1e-30)
            assert error <= RELATIVE, f"item {i + 1} in a batch of {len(items)} differs by {error:.1e}"


def _rows(subject: Subject, items: list[Medium], plans: tuple[ItemPlan, ...]) -> torch.Tensor:
    return encoded(subject, preprocessed(subject, items, plans), plans)


@dataclass(frozen=True, slots=True)
class Flat:
    """A medium of one value all over: black, white, silence or full scale."""

    like: Medium
    level: float

    @property
    def info(self) -> MediaInfo:
        return self.like.info

    def media(self) -> DecodedMedia:
        given = self.like.media()
        full = 1.0 if isinstance(self.like, Sound) else 255.0
        data = np.full_like(given.data, self.level * full)
        return DecodedMedia(given.modality, data, sample_rate=given.sample_rate, times=given.times)

    def given(self) -> object:
        return self.media().data


def edges(subject: Subject) -> st.SearchStrategy[Medium]:
    """Media at the edges of what a number may be, and some that are not."""
    flat = st.builds(Flat, media(subject), st.sampled_from([0.0, 1.0]))
    return st.one_of(flat, media(subject))


def dtypes(subject: Subject) -> st.SearchStrategy[str]:
    return st.sampled_from(list(subject.adapter.dtypes))


@law(needs=("measure_counts_rows",), item=edges, dtype=dtypes)
def rows_are_finite(subject: Subject, item: Medium, dtype: str) -> None:
    """Black, white, silence and full scale give finite rows in each dtype that the adapter declares."""
    plans = measured(subject, [item])
    model = subject.model_in(getattr(torch, dtype))
    rows = encoded(subject, preprocessed(subject, [item], plans), plans, model)
    bad = int((~rows.isfinite()).sum())
    assert not bad, f"{bad} of {rows.numel()} values are not finite in {dtype}"
