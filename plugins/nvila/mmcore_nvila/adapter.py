"""The adapter of NVILA and VILA 1.5."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mmcore.adapter import Adapter, CheckpointFiles
from mmcore.errors import CheckpointError
from mmcore.inputs.decoding import PlainDecoding, decoding_defaults
from mmcore.parts.fields import Json, reads_checkpoint
from mmcore.parts.frames import FrameSampling
from mmcore.parts.pictures import PictureShape
from mmcore.parts.settings import picture_settings, placeholder
from mmcore.parts.tiles import tile_grids
from mmcore_nvila.config import Model
from mmcore_nvila.processor import NvilaProcessor
from mmcore_nvila.prompts import STOPS, format_of, prompt_template
from mmcore_nvila.vision import NvilaEncoder
from mmcore_nvila.weights import ignored_weights, weight_rules

PLACEHOLDERS = {"image": "<image>", "video": "<vila/video>"}
"""Where neither the file nor the tokenizer knows them, their ids lie beyond both, as the published code adds
them."""


_IMAGENET = {"image_mean": (0.485, 0.456, 0.406), "image_std": (0.229, 0.224, 0.225)}


class NvilaAdapter:
    """Makes the adapter for one checkpoint."""

    @staticmethod
    @reads_checkpoint
    def from_config(config: Mapping[str, Any], files: CheckpointFiles) -> Adapter:
        model = Model.read(config, files)
        decoder, vit = model.decoder(), model.vit(config)
        encoder = NvilaEncoder(vit=vit, tiles=model.tiles(vit), width=decoder.hidden_size)
        beyond = max(decoder.vocab_size, files.tokenizer.vocab_size)
        placeholders = tuple(
            placeholder(config, files, modality, text, unknown=beyond + number)
            for number, (modality, text) in enumerate(PLACEHOLDERS.items())
        )
        format_name = format_of(config, model, files)
        return Adapter(
            name="nvila",
            prompt=prompt_template(format_name, model, files, placeholders),
            inputs=_processor(config, files, model, encoder),
            encoder=encoder,
            decoding=_decoding(model, files, format_name),
            decoder=decoder,
            placeholders=placeholders,
            weights=weight_rules(vit, tied_head=decoder.tied_head),
            ignored=ignored_weights(model.vision, vit, tied_head=decoder.tied_head),
        )


def _processor(config: Json, files: CheckpointFiles, model: Model, encoder: NvilaEncoder) -> NvilaProcessor:
    settings = picture_settings(files) or files.json("vision_tower/preprocessor_config.json")
    known = _IMAGENET if encoder.vit.class_token else {}  # the code of such a tower has them, not its file
    shape = PictureShape.for_tower({**known, **settings}, model.vision["image_size"])
    frames = config.get("num_video_frames") or 8
    return NvilaProcessor(
        shape=replace(shape, resample="bicubic") if model.tiling == "resize" else shape,
        patch=encoder.vit.patch,
        features=encoder.tiles,
        width=encoder.width,
        grids=_grids(config, model),
        newline=files.tokenizer.encode("\n", special_tokens=False),
        ends=model.ends,
        sampling=FrameSampling(min_frames=1, max_frames=frames, multiple=1),
    )


def _grids(config: Json, model: Model) -> tuple[tuple[int, int], ...]:
    """With several scales a picture has at least as many tiles as the largest square."""
    if model.tiling == "resize":
        return ()
    smallest = config.get("min_tiles") or 1 if model.tiling == "dynamic" else model.scales[-1] ** 2
    grids = tile_grids(smallest, config.get("max_tiles") or 12)
    if not grids:
        raise CheckpointError(f"config.json: max_tiles {config.get('max_tiles')!r} is under {smallest}")
    return grids


def _decoding(model: Model, files: CheckpointFiles, name: str) -> PlainDecoding:
    """The ends of turns stop an answer too."""
    defaults = decoding_defaults(files.json("generation_config.json"), model.text)
    ends = [files.tokenizer.token_id(stop) for stop in STOPS.get(name, ())]
    stops = (*defaults.stop_ids, *(end for end in ends if end is not None))
    return PlainDecoding(replace(defaults, stop_ids=tuple(dict.fromkeys(stops))))
