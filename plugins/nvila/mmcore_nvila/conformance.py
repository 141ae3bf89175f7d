"""What the conformance kit tries its laws on: tiny checkpoints, and the composition as the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from mmcore.inputs.ops import NumpyOps
from mmcore.testing.family import Case, Family
from mmcore.testing.samples import Clip, Medium
from mmcore_nvila.composition import Composition, Picture, evenly
from mmcore_nvila.published import PUBLISHED, published_files
from mmcore_nvila.testing import write_tiny_checkpoint


def shown(medium: Medium, most: int, *, has_rate: bool) -> list[Picture]:
    """A picture, or what is seen of a video; frames without a rate are a choice already made."""
    data = medium.media().data
    if not isinstance(medium, Clip):
        return [Image.fromarray(data)]
    kept = data if len(data) <= most and not has_rate else evenly(data, most)
    return [Image.fromarray(frame) for frame in kept]


class _Media:
    """Media of one prompt, seen by the composition."""

    def __init__(self, folder: Path) -> None:
        self.composition = Composition(folder)

    def is_cut(self, medium: Medium, media: Sequence[Medium]) -> bool:
        """The only picture of a prompt is."""
        return not isinstance(medium, Clip) and sum(not isinstance(one, Clip) for one in media) == 1

    def seen(self, medium: Medium, *, has_rate: bool) -> list[Picture]:
        return shown(medium, self.composition.description.frames, has_rate=has_rate)


class Patches(_Media):
    """Media as the published processor makes them, in the arrays of the adapter's own `preprocess`."""

    def __call__(self, media: Sequence[Medium]) -> Sequence[Mapping[str, np.ndarray]]:
        return [{"patches": self._patches(medium, self.is_cut(medium, media))} for medium in media]

    def _patches(self, medium: Medium, cut: bool) -> np.ndarray:
        composition, tower = self.composition, self.composition.tower
        pictures = self.seen(medium, has_rate=True)
        tiles = [tile for picture in pictures for tile in composition.tiles(picture, cut)]
        frames = tower.pixels(tiles)[:, :, : tower.covered, : tower.covered].permute(0, 2, 3, 1).numpy()
        patch = tower.covered // tower.side
        return np.concatenate([NumpyOps().patchify(frame[None], patch=patch) for frame in frames])


class Published(_Media):
    """Implements `mmcore.testing.family.Reference`."""

    @torch.inference_mode()
    def logits(self, prompt: Sequence[int], media: Sequence[Medium], answer: Sequence[int]) -> Tensor:
        """Placeholders lie beyond the embedding."""
        table = self.composition.language.get_input_embeddings().weight
        tokens = torch.tensor(prompt)
        slots = tokens >= len(table)
        embedded = table[tokens.masked_fill(slots, 0)].clone()
        if media:
            embedded[slots] = torch.cat([self._rows(medium, self.is_cut(medium, media)) for medium in media])
        return self.composition.following(embedded, answer)

    def _rows(self, medium: Medium, cut: bool) -> Tensor:
        pictures = self.seen(medium, has_rate=False)
        return torch.cat([self.composition.rows(picture, alone=cut) for picture in pictures])


def _case(name: str) -> Case:
    write = partial(write_tiny_checkpoint, variant=name)
    models = "VILA 1.5" if name.startswith("vila") else "NVILA, NVILA-Lite"
    return Case(name=name, write=write, reference=Published, preprocessing=Patches, models=models)


FAMILY = Family(
    adapter="nvila",
    cases=tuple(map(_case, ("nvila", "nvila-lite", "vila1.5", "vila1.5-40b", "nvila-flat"))),
    published=PUBLISHED,
    published_files={name: published_files(config) for name, config in PUBLISHED.items()},
    options={"video": ({"max_frames": 1},)},
)
