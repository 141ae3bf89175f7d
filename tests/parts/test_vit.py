"""The shared tower against transformers, at each of the four kinds of checkpoint that it serves."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import (
    Blip2VisionConfig,
    Blip2VisionModel,
    CLIPVisionConfig,
    CLIPVisionModel,
    InternVLVisionConfig,
    InternVLVisionModel,
    SiglipVisionConfig,
    SiglipVisionModel,
)

from mmcore.adapter import IgnoredWeight
from mmcore.errors import WeightError
from mmcore.inputs.ops import NumpyOps
from mmcore.model.vision_transformer import VisionTransformer
from mmcore.model.weights import load_weights
from mmcore.parts.vit import FUSED, SCALED, SPLIT, VitConfig, vit_config, vit_rules, vit_unused

SIZES: dict[str, Any] = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "patch_size": 4,
    "attn_implementation": "eager",
}
KINDS: dict[str, tuple[Callable[..., Any], Callable[..., Any], int, dict[str, Any]]] = {
    "clip": (
        CLIPVisionConfig,
        CLIPVisionModel,
        16,
        {"class_token": True, "pre_norm": True, "post_norm": False, "patch_bias": False},
    ),
    "siglip": (
        SiglipVisionConfig,
        SiglipVisionModel,
        18,
        {"class_token": False, "pre_norm": False, "post_norm": False, "patch_bias": True},
    ),
    "eva": (
        Blip2VisionConfig,
        Blip2VisionModel,
        16,
        {"class_token": True, "pre_norm": False, "post_norm": True, "patch_bias": True},
    ),
    "intern": (
        partial(InternVLVisionConfig, use_qk_norm=True, norm_type="rms_norm", attention_bias=False),
        InternVLVisionModel,
        16,
        {"class_token": True, "norm": "rms", "qkv_bias": False, "qk_norm": True, "layer_scale": True},
    ),
}
NAMES = {"eva": FUSED, "intern": SCALED}


class _Model(nn.Module):
    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        self.tower = VisionTransformer(config)


class _Rules:
    """What `LoadPlan` asks of an adapter."""

    name = "tower"

    def __init__(self, kind: str, ignored: tuple[IgnoredWeight, ...]) -> None:
        self.weights = vit_rules(["vision_model.", ""], "tower", NAMES.get(kind, SPLIT))
        self.ignored = ignored


def _reference(kind: str) -> tuple[Any, dict[str, Any]]:
    config_class, model_class, side, _ = KINDS[kind]
    torch.manual_seed(3)
    config = config_class(image_size=side, **SIZES)
    model = model_class(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.3 if parameter.ndim == 1 else 0.0, 0.2)
    return model, _described(config)


def _described(config: Any) -> dict[str, Any]:
    """Sizes that the reference gives as pairs, as files give them."""
    fields = config.to_dict()
    return {n: value[0] if isinstance(value, list | tuple) else value for n, value in fields.items()}


def _stored(kind: str, reference: Any) -> dict[str, Tensor]:
    """Under the names of published files, which the reference does not always keep."""
    found = {name: value.contiguous() for name, value in reference.state_dict().items()}
    return published_names(found) if kind == "intern" else found


PARTS = {
    "embeddings.cls_token": "embeddings.class_embedding",
    "embeddings.position_embeddings": "embeddings.position_embedding",
    "embeddings.patch_embeddings.projection": "embeddings.patch_embedding",
    "encoder.layer.": "encoder.layers.",
    ".layernorm_before.": ".norm1.",
    ".layernorm_after.": ".norm2.",
    ".lambda_": ".ls",
    ".attention.projection_layer.": ".attn.proj.",
    ".attention.": ".attn.",
}


def published_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """As the authors of InternViT store them: queries, keys and values are one matrix."""
    found = {}
    for name, value in tensors.items():
        for old, new in PARTS.items():
            name = name.replace(old, new)
        found[name] = value
    for name in [name for name in found if name.endswith("q_proj.weight")]:
        parts = [found.pop(name.replace("q_proj", f"{part}_proj")) for part in "qkv"]
        found[name.replace("q_proj", "qkv")] = torch.cat(parts)
    return found


def _loaded(
    kind: str, reference: Any, vision: dict[str, Any], layer: int, folder: Path, *, ignore: bool = True
) -> VisionTransformer:
    config = vit_config(vision, feature_layer=layer, **KINDS[kind][3])
    ignored = vit_unused(["vision_model.", ""], vision, config) if ignore else ()
    model = _Model(config).requires_grad_(False).eval()
    file = folder / "model.safetensors"
    save_file(_stored(kind, reference), file)
    load_weights(model, _Rules(kind, ignored), [file])  # type: ignore[arg-type]
    return model.tower


def _patches(pictures: np.ndarray, patch: int, side: int) -> Tensor:
    ops, edge = NumpyOps(), patch * side
    return torch.from_numpy(
        np.concatenate([ops.patchify(p[None, :edge, :edge], patch=patch) for p in pictures])
    )


@pytest.mark.parametrize(
    ("kind", "layer"),
    [("clip", -1), ("clip", -2), ("siglip", -1), ("siglip", -2), ("eva", -1), ("intern", -1), ("intern", -2)],
)
def test_rows_equal_the_reference(kind: str, layer: int, tmp_path: Path) -> None:
    reference, vision = _reference(kind)
    tower = _loaded(kind, reference, vision, layer, tmp_path)
    side = KINDS[kind][2]
    pictures = np.random.default_rng(5).normal(size=(3, side, side, 3)).astype(np.float32)
    with torch.inference_mode():
        output = reference(torch.from_numpy(pictures).permute(0, 3, 1, 2), output_hidden_states=True)
        wanted = output.last_hidden_state if kind == "eva" else output.hidden_states[layer]
        rows = tower(_patches(pictures, 4, side // 4))
    assert rows.shape == wanted.shape
    torch.testing.assert_close(rows, wanted, rtol=1e-5, atol=1e-5)


def test_a_block_that_is_not_built_must_be_named(tmp_path: Path) -> None:
    reference, vision = _reference("clip")
    with pytest.raises(WeightError, match=r"layers\.2\."):
        _loaded("clip", reference, vision, -2, tmp_path, ignore=False)


def test_work_grows_with_pictures_and_layers() -> None:
    config = vit_config(_reference("clip")[1], **KINDS["clip"][3])
    assert config.work(4) == 4 * config.work()
    attention = 2 * config.tokens * config.width
    linear = 4 * config.width**2 + 2 * config.width * config.intermediate
    patches = config.patches * config.patch_values * config.width
    assert config.work() == 2 * (3 * config.tokens * (linear + attention) + patches)
