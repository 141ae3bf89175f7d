"""The towers of the composition, opened with transformers: SigLIP and InternViT."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

if TYPE_CHECKING:
    from mmcore_nvila.composition import Description

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True, slots=True)
class Tower:
    """Tiles of ``image`` x ``image`` pixels to ``side`` x ``side`` features."""

    model: Any
    pixels_of: Callable[[Image.Image], np.ndarray]
    """[3, height, width]."""
    image: int
    side: int
    layer: int
    has_class_token: bool

    @property
    def covered(self) -> int:
        """Pixels along a tile's side that patches cover."""
        return self.image // self.side * self.side

    def pixels(self, tiles: Sequence[Image.Image]) -> Tensor:
        """[tiles, 3, image, image]"""
        return torch.stack([torch.as_tensor(self.pixels_of(tile)) for tile in tiles])

    @torch.inference_mode()
    def features(self, tiles: Sequence[Image.Image]) -> Tensor:
        """[tiles, side, side, width]"""
        pixels = self.pixels(tiles)[:, :, : self.covered, : self.covered]
        hidden: Tensor = self.model(pixels, output_hidden_states=True).hidden_states[self.layer]
        rows = hidden[:, int(self.has_class_token) :]
        return rows.reshape(len(tiles), self.side, self.side, -1)


def open_tower(description: Description, folder: Path, weights: Mapping[str, Tensor]) -> Tower:
    import transformers

    vision, intern = description.vision, description.vision.get("model_type") == "intern_vit_6b"
    side = vision["image_size"] // vision["patch_size"]
    pictures = folder if description.is_flat else folder / "vision_tower"
    return Tower(
        model=_intern(transformers, vision, weights) if intern else _siglip(transformers, vision, weights),
        pixels_of=_imagenet if intern else _published(transformers, pictures),
        image=vision["image_size"],
        side=side,
        layer=description.config.get("mm_vision_select_layer", -2),
        has_class_token=intern,
    )


def _published(library: Any, folder: Path) -> Callable[[Image.Image], np.ndarray]:
    processor = library.AutoImageProcessor.from_pretrained(folder, backend="pil")
    return lambda tile: processor(tile, return_tensors="np")["pixel_values"][0]


def _imagenet(tile: Image.Image) -> np.ndarray:
    mean, std = (np.array(values, np.float32) for values in IMAGENET)
    scaled = (np.asarray(tile, np.float32) / 255 - mean) / std
    return scaled.transpose(2, 0, 1)


def _siglip(library: Any, vision: dict[str, Any], weights: Mapping[str, Tensor]) -> Any:
    """The name of the tower's inner module differs between versions of transformers."""
    tower = library.SiglipVisionModel(library.SiglipVisionConfig(**vision)).eval()
    names = {name.removeprefix("vision_model."): name for name in tower.state_dict()}
    bare = {name.removeprefix("vision_model."): tensor for name, tensor in weights.items()}
    kept = {names[name]: tensor for name, tensor in bare.items() if name in names}
    missing = tower.load_state_dict(kept, strict=False).missing_keys
    # The last block and the norm after it are not used, and a tiny checkpoint does not have them.
    last = f"layers.{tower.config.num_hidden_layers - 1}."
    assert all(last in name or "post_layernorm" in name or "head." in name for name in missing), missing
    return tower


_PARTS = {
    "embeddings.class_embedding": "embeddings.cls_token",
    "embeddings.position_embedding": "embeddings.position_embeddings",
    "embeddings.patch_embedding": "embeddings.patch_embeddings.projection",
    "encoder.layers.": "encoder.layer.",
    ".norm1.": ".layernorm_before.",
    ".norm2.": ".layernorm_after.",
    ".ls": ".lambda_",
    ".attn.proj.": ".attention.projection_layer.",
    ".attn.": ".attention.",
}
"""From the names that its authors store to those of transformers."""


def _intern(library: Any, vision: dict[str, Any], weights: Mapping[str, Tensor]) -> Any:
    patch = vision["patch_size"]
    config = library.InternVLVisionConfig(
        hidden_size=vision["hidden_size"],
        num_hidden_layers=vision["num_hidden_layers"],
        num_attention_heads=vision["num_attention_heads"],
        intermediate_size=vision["intermediate_size"],
        image_size=vision["image_size"] // patch * patch,
        patch_size=patch,
        norm_type="rms_norm",
        attention_bias=vision["qkv_bias"],
        use_qk_norm=vision["qk_normalization"],
    )
    tower = library.InternVLVisionModel(config).eval()
    named: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        for theirs, here in _PARTS.items():
            name = name.replace(theirs, here)
        rows = tensor.chunk(3) if ".qkv." in name else [tensor]
        for part, value in zip("qkv", rows, strict=False):
            named[name.replace(".qkv.", f".{part}_proj.")] = value
    missing = tower.load_state_dict(named, strict=False).missing_keys
    assert all("layernorm." in name or "mask_token" in name for name in missing), missing
    return tower
