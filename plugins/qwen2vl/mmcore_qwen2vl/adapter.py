"""The adapter of Qwen2-VL and Qwen2.5-VL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mmcore.adapter import Adapter, CheckpointFiles, Placeholder
from mmcore.errors import CheckpointError
from mmcore.inputs.decoding import PlainDecoding, decoding_defaults
from mmcore.inputs.template import JinjaTemplate
from mmcore.parts.fields import reads_checkpoint
from mmcore_qwen2vl.config import decoder_config, vision_encoder
from mmcore_qwen2vl.positions import MRopePositions
from mmcore_qwen2vl.processor import VisionProcessor, vision_processor
from mmcore_qwen2vl.template import CHAT_TEMPLATE, PADS, TURN_MARKER
from mmcore_qwen2vl.vision import VisionEncoder
from mmcore_qwen2vl.weights import ignored_weights, weight_rules


class Qwen2VLAdapter:
    """Makes the adapter for one checkpoint."""

    @staticmethod
    @reads_checkpoint
    def from_config(config: Mapping[str, Any], files: CheckpointFiles) -> Adapter:
        encoder, decoder = vision_encoder(config), decoder_config(config)
        placeholders = _placeholders(config, files)
        inputs = _processor(files, encoder, modalities=tuple(p.modality for p in placeholders))
        return Adapter(
            name="qwen2vl",
            prompt=JinjaTemplate.from_files(
                files,
                placeholders,
                source=files.chat_template or CHAT_TEMPLATE,
                turn_markers=(TURN_MARKER,),
            ),
            inputs=inputs,
            encoder=replace(encoder, patches=replace(encoder.patches, mean=inputs.mean, std=inputs.std)),
            decoding=PlainDecoding(decoding_defaults(files.json("generation_config.json"), config)),
            decoder=decoder,
            placeholders=placeholders,
            weights=weight_rules(tied_head=decoder.tied_head, gated_tower=encoder.gated),
            ignored=ignored_weights(tied_head=decoder.tied_head),
            positions=MRopePositions(encoder.merge, _tokens_per_second(config, encoder)),
        )


def _placeholders(config: Mapping[str, Any], files: CheckpointFiles) -> tuple[Placeholder, ...]:
    """A checkpoint that knows no mark for videos takes pictures alone."""
    tokens = {
        modality: config.get(f"{modality}_token_id") or files.tokenizer.token_id(text)
        for modality, text in PADS.items()
    }
    if tokens["image"] is None:
        raise CheckpointError(f"neither config.json nor tokenizer.json knows {PADS['image']!r}")
    return tuple(Placeholder(m, PADS[m], int(token)) for m, token in tokens.items() if token is not None)


def _tokens_per_second(config: Mapping[str, Any], encoder: VisionEncoder) -> float:
    """Only the generation with windows counts time in seconds; 4 is its config's default."""
    return float(config["vision_config"].get("tokens_per_second", 4)) if encoder.window else 0.0


def _processor(files: CheckpointFiles, encoder: VisionEncoder, **fields: Any) -> VisionProcessor:
    whole = files.json("processor_config.json")
    pictures = whole.get("image_processor") or files.json("preprocessor_config.json")
    videos = whole.get("video_processor") or files.json("video_preprocessor_config.json") or pictures
    processor = vision_processor(pictures, videos, encoder.out_width, **fields)
    cuts = [(part.patch, part.temporal, part.merge) for part in (processor, encoder.patches)]
    if cuts[0] != cuts[1]:
        raise CheckpointError(
            "preprocessor_config.json says (patch_size, temporal_patch_size, merge_size) = "
            f"{cuts[0]}, config.json {cuts[1]}"
        )
    return processor
