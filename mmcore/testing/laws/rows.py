"""Rows: what is measured from headers is what the encoder gives, and where it goes."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import strategies as st

from mmcore.inputs.media import decode
from mmcore.inputs.ops import NumpyOps
from mmcore.model.weights import Model
from mmcore.request import ArraySource, DecodedMedia, EncoderInput, ItemPlan
from mmcore.testing.law import law
from mmcore.testing.samples import Medium, media
from mmcore.testing.subject import Subject


def some_media(subject: Subject) -> st.SearchStrategy[list[Medium]]:
    return st.lists(media(subject), min_size=1, max_size=min(3, subject.max_items))


def measured(subject: Subject, items: list[Medium]) -> tuple[ItemPlan, ...]:
    processor = subject.adapter.inputs
    return processor.measure([item.info for item in items], [processor] * len(items))


def decoded(item: Medium, plan: ItemPlan) -> DecodedMedia:
    """As the core decodes it for this plan: its frames, size, rate and span."""
    return decode(ArraySource(item.media()), item.info.modality, plan.source)


def preprocessed(subject: Subject, items: list[Medium], plans: tuple[ItemPlan, ...]) -> list[EncoderInput]:
    process = subject.adapter.inputs.preprocess
    return [process(decoded(item, plan), plan, NumpyOps()) for item, plan in zip(items, plans, strict=True)]


@torch.inference_mode()
def encoded(
    subject: Subject, inputs: list[EncoderInput], plans: tuple[ItemPlan, ...], model: Model | None = None
) -> torch.Tensor:
    """[sum of rows, width], by ``model`` or the one in float32."""
    model = model or subject.model
    dtype = next(model.parameters()).dtype
    arrays = subject.adapter.encoder.collate(inputs, plans)
    tensors = {name: torch.from_numpy(np.asarray(array)) for name, array in arrays.items()}
    tensors = {name: t.to(dtype) if t.is_floating_point() else t for name, t in tensors.items()}
    rows: torch.Tensor = model.encoder(**tensors)
    return rows


@law(needs=("any_header_is_measured_or_refused", "every_tensor_has_one_place"), items=some_media)
def measure_counts_rows(subject: Subject, items: list[Medium]) -> None:
    """An encoder gives as many rows as were measured from headers, of the width that was told."""
    plans = measured(subject, items)
    rows = encoded(subject, preprocessed(subject, items, plans), plans)
    told = (sum(plan.rows for plan in plans), plans[0].width)
    assert tuple(rows.shape) == told, f"the encoder gives {tuple(rows.shape)}, measure told {told}"
