"""Encoders whose rows are not their item's own, not numbers, or not what was measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from mmcore_qwen2vl.vision import VisionEncoder
from testing.broken.record import Broken, worse_part
from torch import Tensor, nn

from mmcore.adapter import Adapter, WeightRule
from mmcore.request import EncoderInput, ItemPlan


def edited(encoder: VisionEncoder, edit: Callable[[Tensor], Tensor]) -> nn.Module:
    """The tower with something done to its rows, its parameters under their own names."""
    tower = VisionEncoder.build(encoder)
    rows_of = tower.forward
    tower.forward = lambda **inputs: edit(rows_of(**inputs))
    return tower


class Shorter(VisionEncoder):
    """The last row of a large picture is lost at an edge."""

    def build(self) -> nn.Module:
        return edited(self, lambda rows: rows[:-1] if len(rows) > 4 else rows)


class Everyone(VisionEncoder):
    """One sequence for all items: each sees the others."""

    def collate(self, inputs: Sequence[EncoderInput], plans: Sequence[ItemPlan]) -> Mapping[str, Any]:
        arrays = dict(super().collate(inputs, plans))
        total = int(arrays["starts"][-1])
        return {**arrays, "starts": np.array([0, total], np.int32), "longest": np.zeros(total, np.uint8)}


class Centred(VisionEncoder):
    """Rows are centred over the whole batch."""

    def build(self) -> nn.Module:
        return edited(self, lambda rows: rows - rows.mean(0, keepdim=True))


class Large(VisionEncoder):
    """An intermediate value that float32 and bfloat16 hold, and float16 does not."""

    def build(self) -> nn.Module:
        return edited(self, lambda rows: rows * 1e6 / 1e6)


class Normed(VisionEncoder):
    """Divides by the spread of a picture's levels, which a picture of one colour has not."""

    def collate(self, inputs: Sequence[EncoderInput], plans: Sequence[ItemPlan]) -> Mapping[str, Any]:
        return super().collate([EncoderInput({"frames": _spread(one)}) for one in inputs], plans)


def _spread(one: EncoderInput) -> np.ndarray:
    levels = one.arrays["frames"].astype(np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread: np.ndarray = levels / levels.std()
        return spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen(VisionEncoder):
    """A setting that is in no comparison, hence in no key."""

    gain: int = field(default=1, compare=False)

    def collate(self, inputs: Sequence[EncoderInput], plans: Sequence[ItemPlan]) -> Mapping[str, Any]:
        arrays = dict(VisionEncoder.collate(self, inputs, plans))
        return {**arrays, "pixels": arrays["pixels"] // np.uint8(self.gain)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruled(VisionEncoder):
    """Holds the names of its tensors: a renamed one loses all that is cached."""

    rules: tuple[WeightRule, ...] = (WeightRule("visual.*", "encoder.*"),)


class FromTheFourth(VisionEncoder):
    """Offsets overflow in a large batch: from the fourth item on all are the first."""

    def collate(self, inputs: Sequence[EncoderInput], plans: Sequence[ItemPlan]) -> Mapping[str, Any]:
        arrays = dict(super().collate(inputs, plans))
        if len(inputs) > 3:
            kept = sum(math.prod(plan.geometry) for plan in plans[:3])
            for name in ("corners", "strides"):
                arrays[name][kept:] = arrays[name][0]
        return arrays


class Eaten(VisionEncoder):
    """Takes the arrays out of its inputs: there is no second time."""

    def collate(self, inputs: Sequence[EncoderInput], plans: Sequence[ItemPlan]) -> Mapping[str, Any]:
        arrays = super().collate(inputs, plans)
        for one in inputs:
            dict.clear(one.arrays)  # type: ignore[arg-type]
        return arrays


class Overwritten(VisionEncoder):
    """Leaves in its inputs what it made of them, and packs that a second time."""

    def collate(self, inputs: Sequence[EncoderInput], plans: Sequence[ItemPlan]) -> Mapping[str, Any]:
        arrays = super().collate(inputs, plans)
        for one in inputs:
            dict.update(one.arrays, frames=255 - one.arrays["frames"])
        return arrays


def other_activation(adapter: Adapter) -> Adapter:
    return replace(adapter, encoder=replace(adapter.encoder, activation="relu"))  # type: ignore[type-var]


FAULTS = (
    Broken("measure_counts_rows", worse_part("encoder", Shorter)),
    Broken("rows_are_the_item_s_own", worse_part("encoder", Everyone)),
    Broken("rows_are_the_item_s_own", worse_part("encoder", Centred)),
    Broken("rows_are_finite", worse_part("encoder", Large), hidden=True),
    Broken("rows_are_finite", worse_part("encoder", Normed)),
    Broken("what_changes_an_item_is_in_its_key", worse_part("encoder", Unseen), hidden=True),
    Broken("other_parts_leave_keys_alone", worse_part("encoder", Ruled), hidden=True),
    Broken("a_batch_changes_nothing", worse_part("encoder", FromTheFourth), hidden=True),
    Broken("preemption_changes_nothing", worse_part("encoder", Eaten), hidden=True),
    Broken("preemption_changes_nothing", worse_part("encoder", Overwritten), hidden=True),
    Broken("answers_equal_the_reference", other_activation, name="other activation"),
)
