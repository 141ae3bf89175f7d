"""Reads ``config.json``: of folders (``llm_cfg``, ``vision_tower_cfg``, ``mm_projector_cfg``) and of flat
files (``text_config``, ``vision_config``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mmcore.adapter import CheckpointFiles
from mmcore.decoder_config import DecoderConfig
from mmcore.errors import CheckpointError, UnsupportedOptionError
from mmcore.parts.fields import Json, need
from mmcore.parts.rotary_decoder import rotary_decoder
from mmcore.parts.vit import VitConfig, vit_config
from mmcore_nvila.features import TileMap

FOLDS = {"mlp_downsample": 2, "mlp_downsample_2x2_fix": 2, "mlp_downsample_3x3_fix": 3}
"""Features along a row's side, by projector."""
_TILINGS = ("resize", "dynamic", "dynamic_s2")
_DEFAULTS: Mapping[str, Json] = {
    "llama": {"vocab_size": 32000, "max_position_embeddings": 2048},
    "qwen2": {"vocab_size": 151936, "max_position_embeddings": 32768, "use_sliding_window": False},
}
_SIGLIP = {"hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6}


@dataclass(frozen=True, slots=True)
class Model:
    """What the parts of a checkpoint say."""

    text: Json
    vision: Json
    projector: str
    tiling: str
    """``resize``, ``dynamic`` or ``dynamic_s2``: what becomes of a prompt's only picture."""
    scales: tuple[int, ...]
    """Tiles along each square of ``dynamic_s2``, ascending; else (1,)."""
    ends: bool
    """A newline's embedding follows the rows of each tile: NVILA, not VILA 1.5."""

    @classmethod
    def read(cls, config: Json, files: CheckpointFiles) -> Model:
        """Raises `CheckpointError` where a part is missing, `UnsupportedOptionError` for one not built."""
        text = _part(config, files, ("llm_cfg", "text_config"), "llm")
        vision = _part(config, files, ("vision_tower_cfg", "vision_config"), "vision_tower")
        tiling = config.get("image_aspect_ratio") or _flat(config, "dynamic", "dynamic_s2")
        projector = _projector(config, files)
        _check(text, vision, config, tiling, projector)
        return cls(
            text={**_DEFAULTS[text["model_type"]], **text},
            vision={**_SIGLIP, **vision},
            projector=projector,
            tiling=tiling,
            scales=_scales(config) if tiling == "dynamic_s2" else (1,),
            ends=text["model_type"] == "qwen2" or "image_encoder" in config,
        )

    def decoder(self) -> DecoderConfig:
        return rotary_decoder(self.text, qkv_bias=self.text["model_type"] == "qwen2")

    def vit(self, config: Json) -> VitConfig:
        flags = {"class_token": False, "pre_norm": False, "post_norm": False, "patch_bias": True}
        return vit_config(self.vision, feature_layer=config.get("mm_vision_select_layer", -2), **flags)

    def tiles(self, vit: VitConfig) -> TileMap:
        return TileMap(side=vit.side, fold=FOLDS[self.projector], scales=self.scales)


def _part(config: Json, files: CheckpointFiles, names: tuple[str, ...], folder: str) -> Json:
    """A part's config: inside ``config.json``, or in its folder."""
    for name in names:
        if isinstance(config.get(name), Mapping):
            return config[name]  # type: ignore[no-any-return]
    found = files.json(f"{folder}/config.json")
    if not found:
        raise CheckpointError(f"config.json has no {names[0]}, and {folder}/config.json is missing")
    return found


def _projector(config: Json, files: CheckpointFiles) -> str:
    flat = _flat(config, "mlp_downsample_3x3_fix", "mlp_downsample")
    return flat or str(need(_part(config, files, ("mm_projector_cfg",), "mm_projector"), "mm_projector_type"))


def _flat(config: Json, lite: str, other: str) -> str:
    """Flat files do not say it."""
    found = lite if "lite" in str(config.get("model_type")) else other
    return found if "text_config" in config else ""


def _check(text: Json, vision: Json, config: Json, tiling: str, projector: str) -> None:
    """Raises `UnsupportedOptionError` naming what is not built."""
    tower, feature = vision.get("model_type", "siglip_vision_model"), config.get("mm_vision_select_feature")
    for what, value, built in (
        ("language model", text.get("model_type"), (*_DEFAULTS,)),
        ("vision tower", tower, ("siglip_vision_model",)),
        ("mm_projector_type", projector, (*FOLDS,)),
        ("image_aspect_ratio", tiling, _TILINGS),
        ("mm_vision_select_feature", feature or "cls_patch", ("cls_patch",)),
        ("s2", config.get("s2") or False, (False,)),
    ):
        if value not in built:
            raise UnsupportedOptionError(f"config.json: {what} {value!r} is not built, but {built}")


def _scales(config: Json) -> tuple[int, ...]:
    """``s2_scales``, pixels along a side, as a string or a list; in multiples of the smallest."""
    given = config.get("s2_scales") or "448,896,1344"
    try:
        sides = sorted(map(int, given.split(",") if isinstance(given, str) else given))
        scales = tuple(side // sides[0] for side in sides)
    except (TypeError, ValueError, ZeroDivisionError, IndexError):
        raise CheckpointError(f"config.json: s2_scales {given!r} is no list of sides") from None
    if config.get("s2_resize_output_to_scale_idx", -1) not in (-1, len(scales) - 1):
        raise UnsupportedOptionError("config.json: s2_resize_output_to_scale_idx: only the last is built")
    return scales
