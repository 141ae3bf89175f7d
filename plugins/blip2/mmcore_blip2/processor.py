"""One picture to patches, as ``BlipImageProcessor`` of transformers does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmcore.adapter import MediaLimits, MediaOps
from mmcore.parts.fields import only_options
from mmcore.parts.pictures import PictureShape
from mmcore.request import DecodedMedia, EncoderInput, ItemPlan, MediaInfo, Modality, Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Blip2Processor:
    """Each picture is stretched to one size and becomes ``rows`` rows of ``width`` elements."""

    shape: PictureShape
    patch: int
    rows: int
    width: int
    interleaved: bool
    """The rows take places in the prompt."""
    modalities: tuple[Modality, ...] = ("image",)

    @property
    def limits(self) -> Mapping[Modality, MediaLimits]:
        return {"image": MediaLimits(max_aspect=self.shape.max_aspect, max_items=1)}

    def measure(self, infos: Sequence[MediaInfo], options: Sequence[Any]) -> tuple[ItemPlan, ...]:
        pieces = (Rows(self.rows),) if self.interleaved else ()
        return tuple(ItemPlan(pieces, self.rows, self.width) for _ in infos)

    def preprocess(self, media: DecodedMedia, plan: ItemPlan, ops: MediaOps) -> EncoderInput:
        """``patches`` float32 [patches, 3 * patch * patch]."""
        return EncoderInput(
            {"patches": ops.patchify(self.shape.apply(media.data, ops)[None], patch=self.patch)}
        )

    def with_options(self, options: Mapping[str, Any]) -> Blip2Processor:
        only_options(options, ())
        return self
