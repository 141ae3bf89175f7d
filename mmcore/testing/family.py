"""What an author names for the kit: tiny checkpoints, published configs, a reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from mmcore.testing.samples import Medium


class Reference(Protocol):
    """The model as its authors' own code runs it, for one checkpoint folder, in float32 on the CPU."""

    def logits(self, prompt: Sequence[int], media: Sequence[Medium], answer: Sequence[int]) -> torch.Tensor:
        """[answer, vocabulary]: what follows each prefix of ``answer``, after a prompt of these token ids
        (placeholders written out) with these media in order; in a family with a context stage the ids that
        it reads."""
        ...


Preprocessing = Callable[[Sequence[Medium]], Sequence[Mapping[str, np.ndarray]]]
"""The media of one prompt, each as the published processor makes it, in the arrays of the adapter's own
`InputProcessor.preprocess`."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One tiny checkpoint, of one variant of the family."""

    name: str
    write: Callable[[Path], Path]
    """Writes it in hub layout and gives its folder."""
    reference: Callable[[Path], Reference] | None = None
    reference_takes: tuple[str, ...] = ()
    """Modalities that the reference can answer about; none named: all."""
    preprocessing: Callable[[Path], Preprocessing] | None = None
    preprocessing_bound: float = 2e-6
    """How far a value may lie from that of the published processor."""
    tiny: bool = True
    """Too small for more than one thread of torch: they would only wait for each other."""
    models: str = ""
    """The published models whose kind it is: a row of `docs/families.md`, shared with cases of the same."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """A plugin's manifest names it by ``AdapterInfo(testing="module:FAMILY")``."""

    adapter: str
    """`AdapterInfo.name`."""
    cases: tuple[Case, ...]
    """Of a real checkpoint that is tried in their place, the first one's reference and processor answer."""
    published: Mapping[str, Mapping[str, Any]]
    """``config.json`` of published checkpoints, by name."""
    published_files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Their other JSON files, by name of the checkpoint and of the file; else the first case's count."""
    options: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """Request options that change what an item becomes, by modality."""
