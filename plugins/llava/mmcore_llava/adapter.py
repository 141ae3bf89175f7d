"""The adapter of LLaVA-1.5, LLaVA-NeXT and LLaVA-OneVision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmcore.adapter import Adapter, CheckpointFiles
from mmcore.inputs.decoding import PlainDecoding, decoding_defaults
from mmcore.inputs.template import JinjaTemplate
from mmcore.parts.fields import Json, reads_checkpoint
from mmcore.parts.frames import FrameSampling
from mmcore.parts.pictures import PictureShape
from mmcore.parts.settings import first_token, picture_settings, placeholder
from mmcore_llava.config import decoder_config, is_onevision, is_tiled, text_kind, vision_encoder, vision_part
from mmcore_llava.processor import LlavaProcessor
from mmcore_llava.vision import LlavaEncoder
from mmcore_llava.weights import ignored_weights, weight_rules

TURN_MARKERS = ("USER:", "[INST]", "<|im_start|>", "<|start_header_id|>")
FRAMES = FrameSampling(fps=1.0, min_frames=1, max_frames=32, multiple=1)
"""The published demonstrations show 32 frames at most."""


class LlavaAdapter:
    """Makes the adapter for one checkpoint."""

    @staticmethod
    @reads_checkpoint
    def from_config(config: Mapping[str, Any], files: CheckpointFiles) -> Adapter:
        shape = PictureShape.for_tower(picture_settings(files), vision_part(config)["image_size"])
        encoder, decoder = vision_encoder(config, shape), decoder_config(config)
        bos = first_token(files, by_default=text_kind(config) in ("llama", "mistral"))
        modalities = ("image", "video") if is_onevision(config) else ("image",)
        placeholders = tuple(placeholder(config, files, name, f"<{name}>") for name in modalities)
        return Adapter(
            name="llava",
            prompt=JinjaTemplate.from_files(files, placeholders, turn_markers=TURN_MARKERS, prefix=bos),
            inputs=_processor(config, files, encoder),
            encoder=encoder,
            decoding=PlainDecoding(decoding_defaults(files.json("generation_config.json"), config)),
            decoder=decoder,
            placeholders=placeholders,
            weights=weight_rules(tied_head=decoder.tied_head),
            ignored=ignored_weights(vision_part(config), encoder.vit, tied_head=decoder.tied_head),
        )


def _processor(config: Json, files: CheckpointFiles, encoder: LlavaEncoder) -> LlavaProcessor:
    settings = picture_settings(files)
    pinpoints = settings.get("image_grid_pinpoints") or config.get("image_grid_pinpoints") or ()
    return LlavaProcessor(
        shape=encoder.shape,
        features=encoder.features,
        width=encoder.width,
        resolutions=tuple((h, w) for h, w in pinpoints) if is_tiled(config) else (),
        lone=is_onevision(config),
        sampling=FRAMES if is_onevision(config) else None,
    )
