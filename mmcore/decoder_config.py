"""A decoder as one row of data.

The core has one decoder (`mmcore.model.decoder`); a family describes its own by filling this record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mmcore.errors import CheckpointError

Activation = Literal["silu", "gelu", "gelu_tanh", "quick_gelu", "relu"]
Norm = Literal["rms", "layer"]


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary positions (Su et al. 2021, half-split layout).

    ``sections`` splits the ``head_dim / 2`` frequencies over several position axes, in order
    (M-RoPE, Wang et al. 2024): empty for one axis. ``scaling`` holds the checkpoint's fields, sorted.
    """

    theta: float = 10_000.0
    sections: tuple[int, ...] = ()
    scaling: tuple[tuple[str, float | str], ...] = ()

    @property
    def axes(self) -> int:
        return max(1, len(self.sections))


@dataclass(frozen=True, slots=True)
class LearnedPositions:
    """A table of ``count`` vectors; token i uses row ``i + offset``."""

    count: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class RelativeBias:
    """Bucketed relative position bias on the attention scores (Raffel et al. 2020)."""

    buckets: int
    max_distance: int
    bidirectional: bool = False


Positions = Rope | LearnedPositions | RelativeBias


_SIZES = (
    "vocab_size",
    "hidden_size",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "intermediate_size",
    "max_length",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """Shape and rules of a text decoder. Sizes are counts of elements; ``head_dim`` is per head."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    positions: Positions
    max_length: int
    norm: Norm = "rms"
    norm_eps: float = 1e-6
    post_norm: bool = False
    activation: Activation = "silu"
    gated: bool = True
    q_bias: bool = False
    k_bias: bool = False
    v_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    embed_scale: float = 1.0
    embed_norm: bool = False
    final_norm: bool = True
    attention_scale: float | None = None
    """Factor on the scores; None means ``head_dim ** -0.5``."""
    cross_attention: bool = False
    cross_width: int = 0
    """Width of the states that cross-attention projects; 0 without cross-attention."""
    tied_head: bool = False
    head_bias: bool = False
    head_scale: float = 1.0
    feature_levels: int = 0
    """Extra levels of encoder features added to the hidden state after the first layers."""
    alignment_heads: tuple[tuple[int, int], ...] = ()
    """(layer, head) pairs whose cross-attention aligns tokens with time."""

    def __post_init__(self) -> None:
        """Raises `CheckpointError` for a size that no model has, or heads that do not share their keys."""
        for name in _SIZES:
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise CheckpointError(f"config.json makes {name} of the decoder {value!r}; it is a count")
        if self.num_heads % self.num_kv_heads:
            raise CheckpointError(
                f"config.json: {self.num_heads} heads cannot share {self.num_kv_heads} heads of keys evenly"
            )

    @property
    def scale(self) -> float:
        return self.head_dim**-0.5 if self.attention_scale is None else self.attention_scale
