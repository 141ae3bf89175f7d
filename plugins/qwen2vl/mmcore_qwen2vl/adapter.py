"""The adapter of Qwen2-VL and Qwen2.5-VL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmcore.adapter import Adapter, CheckpointFiles, Placeholder
from mmcore.errors import CheckpointError
from mmcore.inputs.decoding import PlainDecoding, decoding_defaults
from mmcore.inputs.template import JinjaTemplate
from mmcore_qwen2vl.config import decoder_config, vision_encoder
from mmcore_qwen2vl.positions import MRopePositions
from mmcore_qwen2vl.processor import ImageProcessor, image_processor
from mmcore_qwen2vl.template import CHAT_TEMPLATE, IMAGE_PAD, TURN_MARKER
from mmcore_qwen2vl.vision import VisionEncoder
from mmcore_qwen2vl.weights import ignored_weights, weight_rules


class Qwen2VLAdapter:
    """Makes the adapter for one checkpoint."""

    @staticmethod
    def from_config(config: Mapping[str, Any], files: CheckpointFiles) -> Adapter:
        encoder, decoder = vision_encoder(config), decoder_config(config)
        placeholder = Placeholder("image", IMAGE_PAD, _image_token(config, files))
        return Adapter(
            name="qwen2vl",
            prompt=JinjaTemplate.from_files(
                files,
                [placeholder],
                source=files.chat_template or CHAT_TEMPLATE,
                turn_markers=(TURN_MARKER,),
            ),
            inputs=_processor(files, encoder),
            encoder=encoder,
            decoding=PlainDecoding(decoding_defaults(files.json("generation_config.json"), config)),
            decoder=decoder,
            placeholders=(placeholder,),
            weights=weight_rules(tied_head=decoder.tied_head, gated_tower=encoder.gated),
            ignored=ignored_weights(tied_head=decoder.tied_head),
            positions=MRopePositions(encoder.merge),
        )


def _image_token(config: Mapping[str, Any], files: CheckpointFiles) -> int:
    token = config.get("image_token_id")
    if token is None:
        token = files.tokenizer.token_id(IMAGE_PAD)
    if token is None:
        raise CheckpointError(f"neither config.json nor tokenizer.json knows {IMAGE_PAD!r}")
    return int(token)


def _processor(files: CheckpointFiles, encoder: VisionEncoder) -> ImageProcessor:
    whole = files.json("processor_config.json").get("image_processor")
    processor = image_processor(whole or files.json("preprocessor_config.json"), encoder.out_width)
    values = 3 * processor.temporal * processor.patch**2
    if (values, processor.merge) != (encoder.patch_values, encoder.merge):
        raise CheckpointError(
            f"preprocessor_config.json makes patches of {values} values, merged {processor.merge}x"
            f"{processor.merge}; config.json expects {encoder.patch_values} and {encoder.merge}"
        )
    return processor
