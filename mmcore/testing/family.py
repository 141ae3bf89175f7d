"""What an author names for the kit: tiny checkpoints, published configs, a reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from mmcore.testing.samples import Medium


class Reference(Protocol):
    """The model as its authors' own code runs it, for one checkpoint folder, in float32 on the CPU."""

    def logits(self, prompt: Sequence[int], media: Sequence[Medium], answer: Sequence[int]) -> torch.Tensor:
        """[answer, vocabulary]: what follows each prefix of ``answer``, after a prompt of these token ids
        (placeholders written out) with these media in order."""
        ...


@dataclass(frozen=True, kw_only=True)
class Case:
    """One tiny checkpoint, of one variant of the family."""

    name: str
    write: Callable[[Path], Path]
    """Writes it in hub layout and gives its folder."""
    reference: Callable[[Path], Reference] | None = None


@dataclass(frozen=True, kw_only=True)
class Family:
    """A plugin's manifest names it by ``AdapterInfo(testing="module:FAMILY")``."""

    adapter: str
    """`AdapterInfo.name`."""
    cases: tuple[Case, ...]
    published: Mapping[str, Mapping[str, Any]]
    """``config.json`` of published checkpoints, by name."""
