"""The adapter of BLIP-2: OPT reads the rows before the prompt, FLAN-T5's encoder reads both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmcore.adapter import (
    Adapter,
    CheckpointFiles,
    Fusion,
    IgnoredWeight,
    Placeholder,
    SharedWeight,
)
from mmcore.inputs.decoding import PlainDecoding, decoding_defaults
from mmcore.inputs.template import PlainTemplate, template_tokens
from mmcore.parts.fields import Json, reads_checkpoint
from mmcore.parts.pictures import PictureShape
from mmcore.parts.settings import picture_settings
from mmcore_blip2.config import decoder_config, text_part, vision_encoder
from mmcore_blip2.processor import Blip2Processor
from mmcore_blip2.text import TextEncoder
from mmcore_blip2.vision import Blip2Encoder
from mmcore_blip2.weights import HEAD, TABLE, encoder_rules, opt_rules, t5_ignored, t5_rules

_MEAN, _STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


class Blip2Adapter:
    """Makes the adapter for one checkpoint."""

    @staticmethod
    @reads_checkpoint
    def from_config(config: Mapping[str, Any], files: CheckpointFiles) -> Adapter:
        text = text_part(config)
        return (_with_t5 if text["model_type"] == "t5" else _with_opt)(config, text, files)


def _with_opt(config: Json, text: Json, files: CheckpointFiles) -> Adapter:
    """The rows come first, before BOS."""
    decoder = decoder_config(text, tied_head=True)
    encoder = vision_encoder(config, decoder.hidden_size)
    image = _placeholder(config, text, files)
    bos = dict(template_tokens(files)).get("bos_token", "</s>")
    return Adapter(
        name="blip2",
        prompt=PlainTemplate((image,), prefix=bos),
        inputs=_processor(encoder, files, interleaved=True),
        encoder=encoder,
        decoding=PlainDecoding(decoding_defaults(files.json("generation_config.json"), text)),
        decoder=decoder,
        placeholders=(image,),
        weights=(*encoder_rules(), *opt_rules()),
        ignored=(IgnoredWeight(HEAD, "the head is the embedding, stored twice", TABLE),),
        dtypes=("float16", "bfloat16", "float32"),
    )


def _with_t5(config: Json, text: Json, files: CheckpointFiles) -> Adapter:
    generation = files.json("generation_config.json")
    stored = files.tensor_names
    tied = HEAD not in stored if stored else text.get("tie_word_embeddings") is not False
    decoder, image = decoder_config(text, tied_head=tied), _placeholder(config, text, files)
    encoder = vision_encoder(config, decoder.hidden_size)
    starts = (
        generation.get("decoder_start_token_id"),
        text.get("decoder_start_token_id"),
        text["pad_token_id"],
    )
    eos = dict(template_tokens(files)).get("eos_token", "</s>")
    return Adapter(
        name="blip2",
        prompt=PlainTemplate((image,), suffix=eos),
        inputs=_processor(encoder, files, interleaved=False),
        encoder=encoder,
        decoding=PlainDecoding(
            decoding_defaults(generation, text), (next(start for start in starts if start is not None),)
        ),
        decoder=decoder,
        placeholders=(image,),
        weights=(*encoder_rules(), *t5_rules(stored, tied_head=tied)),
        ignored=tuple(t5_ignored(stored, tied_head=tied)),
        shared=(SharedWeight("context.embedding.weight", "decoder.embedding.weight"),),
        fusion=Fusion.CROSS_ATTENTION,
        context=TextEncoder(decoder=decoder, layers=text["num_layers"], max_text=text["n_positions"]),
        dtypes=("bfloat16", "float32"),
    )


def _placeholder(config: Json, text: Json, files: CheckpointFiles) -> Placeholder:
    """Old files have no such token: its id then lies behind the vocabulary."""
    named = (
        config.get("image_token_index"),
        config.get("image_token_id"),
        files.tokenizer.token_id("<image>"),
    )
    found = next((value for value in named if value is not None), text["vocab_size"])
    return Placeholder("image", "<image>", int(found))


def _processor(encoder: Blip2Encoder, files: CheckpointFiles, *, interleaved: bool) -> Blip2Processor:
    side = encoder.vit.side * encoder.vit.patch
    known = {"image_mean": _MEAN, "image_std": _STD}
    shape = PictureShape.for_tower({**known, **picture_settings(files)}, side)
    return Blip2Processor(
        shape=shape,
        patch=encoder.vit.patch,
        rows=encoder.qformer.queries,
        width=encoder.width,
        interleaved=interleaved,
    )
