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
        flat, lite = "text_config" in config, "lite" in str(config.get("model_type"))
        text = _part(config, files, ("llm_cfg", "text_config"), "llm")
        tiling = config.get("image_aspect_ratio") or ("dynamic" if lite else "dynamic_s2" if flat else "")
        vision = _part(config, files, ("vision_tower_cfg", "vision_config"), "vision_tower")
        _check(text, vision, config, tiling)
        return cls(
            text={**_DEFAULTS[text["model_type"]], **text},
            vision={**_SIGLIP, **vision},
            projector=("mlp_downsample_3x3_fix" if lite else "mlp_downsample")
            if flat
            else _projector(config, files),
            tiling=tiling,
            scales=_scales(config) if tiling == "dynamic_s2" else (1,),
            ends=text["model_type"] == "qwen2" or "image_encoder" in config,
        )

    def decoder(self) -> DecoderConfig:
        return rotary_decoder(self.text, qkv_bias=self.text["model_type"] == "qwen2")

    def vit(self, config: Json) -> VitConfig:
        layer = config.get("mm_vision_select_layer", -2)
        flags = {"class_token": False, "pre_norm": False, "post_norm": False, "patch_bias": True}
        return vit_config(self.vision, feature_layer=layer, **flags)

    def tiles(self, vit: VitConfig) -> TileMap:
        if self.projector not in FOLDS:
            raise UnsupportedOptionError(
                f"mm_projector_type {self.projector!r} is none of {', '.join(FOLDS)}"
            )
        return TileMap(side=vit.side, fold=FOLDS[self.projector], scales=self.scales)


def _part(config: Json, files: CheckpointFiles, names: tuple[str, ...], folder: str) -> Json:
    """A part's config: inside ``config.json``, or in its folder."""
    for name in names:
        if isinstance(config.get(name), Mapping):
            return config[name]  # type: ignore[no-any-return]
    found = files.json(f"{folder}/config.json")
    if not found:
        raise CheckpointError(
            f"config.json has no {' or '.join(names)}, and there is no {folder}/config.json"
        )
    return found


def _projector(config: Json, files: CheckpointFiles) -> str:
    part = _part(config, files, ("mm_projector_cfg",), "mm_projector")
    return str(need(part, "mm_projector_type", "mm_projector_cfg"))


def _check(text: Json, vision: Json, config: Json, tiling: str) -> None:
    """Raises `UnsupportedOptionError` naming what is not built."""
    found = {
        "language model": (text.get("model_type"), tuple(_DEFAULTS)),
        "vision tower": (vision.get("model_type", "siglip_vision_model"), ("siglip_vision_model",)),
        "image_aspect_ratio": (tiling, _TILINGS),
        "mm_vision_select_feature": (config.get("mm_vision_select_feature", "cls_patch"), ("cls_patch",)),
        "s2 without tiling": (bool(config.get("s2")), (False,)),
    }
    for what, (value, built) in found.items():
        if value not in built:
            names = ", ".join(map(str, built))
            raise UnsupportedOptionError(f"config.json: {what} {value!r} is not built; built: {names}")


def _scales(config: Json) -> tuple[int, ...]:
    """``s2_scales``, pixels along a side, as a string or a list; in multiples of the smallest."""
    given = config.get("s2_scales") or "448,896,1344"
    try:
        sides = sorted(int(side) for side in (given.split(",") if isinstance(given, str) else given))
        scales = tuple(side // sides[0] for side in sides)
    except (TypeError, ValueError, ZeroDivisionError, IndexError):
        raise CheckpointError(f"config.json: s2_scales {given!r} is no list of sides") from None
    if config.get("s2_resize_output_to_scale_idx", -1) not in (-1, len(scales) - 1):
        raise UnsupportedOptionError("config.json: s2_resize_output_to_scale_idx: only the last is built")
    return scales
