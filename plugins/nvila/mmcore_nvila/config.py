"""Reads ``config.json``: of folders (``llm_cfg``, ``vision_tower_cfg``, ``mm_projector_cfg``) and of flat
files (``text_config``, ``vision_config``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mmcore.adapter import CheckpointFiles
from mmcore.decoder_config import DecoderConfig
from mmcore.errors import CheckpointError, UnsupportedOptionError
from mmcore.parts.fields import Json, need, only_built
from mmcore.parts.rotary_decoder import rotary_decoder
from mmcore.parts.settings import part_config
from mmcore.parts.vit import VitConfig, vit_config
from mmcore_nvila.features import TileMap

FOLDS = {"mlp_downsample": 2, "mlp_downsample_2x2_fix": 2, "mlp_downsample_3x3_fix": 3}
"""Features along a row's side, by projector."""
_TILINGS = ("resize", "dynamic", "dynamic_s2")
_DEFAULTS: Mapping[str, Json] = {
    "llama": {"vocab_size": 32000, "max_position_embeddings": 2048},
    "qwen2": {"vocab_size": 151936, "max_position_embeddings": 32768, "use_sliding_window": False},
}


@dataclass(frozen=True, slots=True)
class Tower:
    """A kind of vision tower; ``form`` holds fields of `VitConfig`."""

    activation: str
    rows: str
    """What ``mm_vision_select_feature`` says for its patches, without a class token."""
    form: Json


_INTERN = {"class_token": True, "norm": "rms", "qkv_bias": False, "qk_norm": True, "layer_scale": True}
_TOWERS = {
    "siglip_vision_model": Tower("gelu_pytorch_tanh", "cls_patch", {}),
    "intern_vit_6b": Tower("gelu", "patch", _INTERN),
}
_TOWER_BUILT = {"qkv_bias": False, "qk_normalization": True, "norm_type": "rms_norm"}


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
        text = part_config(config, files, ("llm_cfg", "text_config"), "llm")
        vision = part_config(config, files, ("vision_tower_cfg", "vision_config"), "vision_tower")
        vision = {"model_type": "siglip_vision_model", "layer_norm_eps": 1e-6, **vision}
        tiling = config.get("image_aspect_ratio") or _flat(config, "dynamic", "dynamic_s2")
        projector = _projector(config, files)
        _check(text, vision, config, tiling, projector)
        return cls(
            text={**_DEFAULTS[text["model_type"]], **text},
            vision={"hidden_act": _TOWERS[vision["model_type"]].activation, **vision},
            projector=projector,
            tiling=tiling,
            scales=_scales(config) if tiling == "dynamic_s2" else (1,),
            ends=text["model_type"] == "qwen2" or "image_encoder" in config,
        )

    def decoder(self) -> DecoderConfig:
        return rotary_decoder(self.text, qkv_bias=self.text["model_type"] == "qwen2")

    def vit(self, config: Json) -> VitConfig:
        layer, form = config.get("mm_vision_select_layer", -2), _TOWERS[self.vision["model_type"]].form
        return vit_config(self.vision, feature_layer=layer, **form)

    def tiles(self, vit: VitConfig) -> TileMap:
        return TileMap(side=vit.side, fold=FOLDS[self.projector], scales=self.scales)


def _projector(config: Json, files: CheckpointFiles) -> str:
    flat = _flat(config, "mlp_downsample_3x3_fix", "mlp_downsample")
    part = {} if flat else part_config(config, files, ("mm_projector_cfg",), "mm_projector")
    return flat or str(need(part, "mm_projector_type"))


def _flat(config: Json, lite: str, other: str) -> str:
    """Flat files do not say it."""
    found = lite if "lite" in str(config.get("model_type")) else other
    return found if "text_config" in config else ""


def _check(text: Json, vision: Json, config: Json, tiling: str, projector: str) -> None:
    """Raises `UnsupportedOptionError` naming what is not built."""
    tower, rows = _TOWERS.get(vision["model_type"]), config.get("mm_vision_select_feature")
    only_built(vision, _TOWER_BUILT, "vision_tower_cfg")
    for what, value, built in (
        ("language model", text.get("model_type"), (*_DEFAULTS,)),
        ("vision tower", vision["model_type"], (*_TOWERS,)),
        ("mm_projector_type", projector, (*FOLDS,)),
        ("image_aspect_ratio", tiling, _TILINGS),
        ("mm_vision_select_feature", rows, (None, tower and tower.rows)),
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
