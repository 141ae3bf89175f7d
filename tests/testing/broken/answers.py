"""Positions, rules and chains that remember what they must not, and weights in the wrong places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from mmcore_qwen2vl.positions import MRopePositions
from safetensors.torch import load_file, save_file
from testing.broken.record import Broken, worse_part

from mmcore.adapter import Adapter, Generation, IgnoredWeight, Layout, LogitsEdit, LogitsRule, WeightRule
from mmcore.inputs.decoding import PlainDecoding
from mmcore.request import PreparedRequest, Result, TokenPositions

# ------------------------------------------------------------------ positions


class OneAxis(MRopePositions):
    """Counts as text alone does."""

    def __call__(self, layout: Layout) -> TokenPositions:
        whole = super().__call__(layout)
        return TokenPositions(whole.values[:1], whole.delta)


BUFFER = np.zeros((3, 4096), np.int32)


class OneBuffer(MRopePositions):
    """All prompts are placed in one buffer."""

    def __call__(self, layout: Layout) -> TokenPositions:
        whole = super().__call__(layout)
        BUFFER[:, : layout.num_tokens] = whole.values
        return TokenPositions(BUFFER[:, : layout.num_tokens], whole.delta)


class NoDelta(MRopePositions):
    """An answer goes on at the number of tokens, whatever the pictures took."""

    def __call__(self, layout: Layout) -> TokenPositions:
        return TokenPositions(super().__call__(layout).values, 0)


class Foreseeing(MRopePositions):
    """What comes first stands further on, the more pictures come later."""

    def __call__(self, layout: Layout) -> TokenPositions:
        whole = super().__call__(layout)
        return TokenPositions(whole.values + len(layout.ranges), whole.delta + len(layout.ranges))


class FromTheCut(np.ndarray):
    """A piece of it begins to count anew, as positions that are made chunk by chunk."""

    def __getitem__(self, index: Any) -> Any:
        piece = np.asarray(self)[index]
        cut = index[1].start if isinstance(index, tuple) and isinstance(index[1], slice) else 0
        return piece - piece[:, :1] if cut and piece.ndim == 2 and piece.size else piece


class TextAfterTheCut(np.ndarray):
    """A piece of it has forgotten the pictures before it: all axes are those of text."""

    def __getitem__(self, index: Any) -> Any:
        piece = np.asarray(self)[index]
        cut = index[1].start if isinstance(index, tuple) and isinstance(index[1], slice) else 0
        if cut and piece.ndim == 2:
            return np.broadcast_to(np.arange(cut, cut + piece.shape[1], dtype=np.int32), piece.shape)
        return piece


class CountsFromTheCut(MRopePositions):
    def __call__(self, layout: Layout) -> TokenPositions:
        whole = super().__call__(layout)
        return TokenPositions(whole.values.view(FromTheCut), whole.delta)


class ForgetsAtTheCut(MRopePositions):
    def __call__(self, layout: Layout) -> TokenPositions:
        whole = super().__call__(layout)
        return TokenPositions(whole.values.view(TextAfterTheCut), whole.delta)


def lambda_positions(adapter: Adapter) -> Adapter:
    own = adapter.positions
    assert own is not None
    return replace(adapter, positions=lambda layout: own(layout))


# ------------------------------------------------------------------ decoding


@dataclass(frozen=True, slots=True)
class NeverTwice:
    """Bans what the same conversation said before."""

    said: set[int]
    before: frozenset[int]
    needs_host_ids: bool = True

    def edit(self, generated: Sequence[int]) -> LogitsEdit:
        self.said.update(generated)
        return LogitsEdit(banned=tuple(self.before))


@dataclass(frozen=True, slots=True)
class Remembering(PlainDecoding):
    """Rules outlive their request: a prompt that is asked again is answered otherwise."""

    said: dict[bytes, set[int]] = field(default_factory=dict)

    def logits_rules(self, request: PreparedRequest) -> tuple[LogitsRule, ...]:
        said = self.said.setdefault(request.root_key, set())
        return (NeverTwice(said, frozenset(said)),)


@dataclass(frozen=True, slots=True)
class Accumulating(PlainDecoding):
    """An answer's text begins with the last one to the same prompt."""

    texts: dict[bytes, str] = field(default_factory=dict)

    def finish(self, generation: Generation) -> Result:
        text = self.texts.get(generation.request.root_key, "") + generation.text
        self.texts[generation.request.root_key] = text
        return Result(text)


@dataclass(slots=True)
class Shared:
    """One rule for all sequences: who is asked in turn with another counts the other's steps."""

    last: int = 0
    last_length: int = 0
    needs_host_ids: bool = True

    def edit(self, generated: Sequence[int]) -> LogitsEdit:
        other = bool(generated) and len(generated) == self.last_length
        self.last_length = len(generated)
        return LogitsEdit(banned=tuple(range(0, 256, 2)) if other else ())


@dataclass(frozen=True, slots=True)
class OneRule(PlainDecoding):
    """Its rule is made once."""

    rule: Shared = field(default_factory=Shared)

    def logits_rules(self, request: PreparedRequest) -> tuple[LogitsRule, ...]:
        return (self.rule,)


# ------------------------------------------------------------------ weights


def one_rule_less(adapter: Adapter) -> Adapter:
    return replace(adapter, weights=tuple(r for r in adapter.weights if "q_proj.bias" not in r.source))


def mapped_and_ignored(adapter: Adapter) -> Adapter:
    """Ignoring wins without a word."""
    lost = IgnoredWeight("model.norm.weight", "it is all ones anyway")
    return replace(adapter, ignored=(*adapter.ignored, lost))


def without_reason(adapter: Adapter) -> Adapter:
    return replace(adapter, ignored=(*adapter.ignored, IgnoredWeight("model.extra", " ")))


def _changed(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


def fuse_gate_and_up(folder: Path) -> None:
    """A file in which both are one tensor, gate before up."""
    import torch

    def change(tensors: dict[str, Any]) -> None:
        for layer in range(2):
            name = f"model.layers.{layer}.mlp."
            parts = [tensors.pop(f"{name}{part}_proj.weight") for part in ("gate", "up")]
            tensors[f"{name}gate_up_proj.weight"] = torch.cat(parts)

    _changed(folder, change)


def fused_gate_and_up(adapter: Adapter) -> Adapter:
    """Its rule names no shard: whole it is right, no rank can take its part."""
    kept = [r for r in adapter.weights if "mlp.gate_proj" not in r.source and "mlp.up_proj" not in r.source]
    layer = "layers.{}.mlp.gate_up"
    fused = WeightRule(f"model.{layer}_proj.weight", f"decoder.{layer}.weight")
    return replace(adapter, weights=(*kept, fused))


def flatten_down(folder: Path) -> None:
    """A file that stores a matrix flat."""

    def change(tensors: dict[str, Any]) -> None:
        for name in [name for name in tensors if name.endswith("mlp.down_proj.weight")]:
            tensors[name] = tensors[name].reshape(-1).contiguous()

    _changed(folder, change)


def flat_down(adapter: Adapter) -> Adapter:
    rules = [
        replace(r, reshape=True) if "layers.{}.mlp.down_proj" in r.source else r for r in adapter.weights
    ]
    return replace(adapter, weights=tuple(rules))


FAULTS = (
    Broken("adapter_and_requests_pickle", lambda_positions, name="a lambda", hidden=True),
    Broken("positions_fit_the_decoder", worse_part("positions", OneAxis)),
    Broken("positions_fit_the_decoder", worse_part("positions", OneBuffer), hidden=True),
    Broken("positions_sliced_are_positions_whole", worse_part("positions", NoDelta)),
    Broken("positions_sliced_are_positions_whole", worse_part("positions", Foreseeing)),
    Broken("chunks_change_nothing", worse_part("positions", CountsFromTheCut)),
    Broken("chunks_change_nothing", worse_part("positions", ForgetsAtTheCut)),
    Broken("a_cached_prefix_changes_nothing", worse_part("decoding", Remembering)),
    Broken("a_cached_prefix_changes_nothing", worse_part("decoding", Accumulating), hidden=True),
    Broken("a_batch_changes_nothing", worse_part("decoding", OneRule), hidden=True),
    Broken("every_tensor_has_one_place", one_rule_less, name="a rule is missing"),
    Broken("every_tensor_has_one_place", mapped_and_ignored, name="mapped and ignored"),
    Broken("every_tensor_has_one_place", without_reason, name="ignored without a reason", hidden=True),
    Broken(
        "tensor_parallel_parts_make_the_whole",
        fused_gate_and_up,
        name="gate and up fused",
        rewrite=fuse_gate_and_up,
    ),
    Broken("tensor_parallel_parts_make_the_whole", flat_down, name="down flat", rewrite=flatten_down),
)
