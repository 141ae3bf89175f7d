"""The shared tower against transformers, at each of the three kinds of checkpoint that it serves."""

from __future__ import annotations

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
    SiglipVisionConfig,
    SiglipVisionModel,
)

from mmcore.adapter import IgnoredWeight
from mmcore.errors import WeightError
from mmcore.inputs.ops import NumpyOps
from mmcore.model.vision_transformer import VisionTransformer
from mmcore.model.weights import LoadPlan
from mmcore.parts.vit import VitConfig, vit_config, vit_rules, vit_unused

SIZES: dict[str, Any] = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "patch_size": 4,
    "attn_implementation": "eager",
}
KINDS: dict[str, tuple[type[Any], type[Any], int, dict[str, bool]]] = {
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
}


class _Model(nn.Module):
    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        self.tower = VisionTransformer(config)


class _Rules:
    """What `LoadPlan` asks of an adapter."""

    name = "tower"

    def __init__(self, vision: dict[str, Any], config: VitConfig, ignored: tuple[IgnoredWeight, ...]) -> None:
        self.weights = vit_rules(
            ["vision_model.", ""], "tower", fused=vision["model_type"].startswith("blip")
        )
        self.ignored = ignored


def _reference(kind: str) -> tuple[Any, dict[str, Any]]:
    config_class, model_class, side, _ = KINDS[kind]
    torch.manual_seed(3)
    config = config_class(image_size=side, **SIZES)
    model = model_class(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.3 if parameter.ndim == 1 else 0.0, 0.2)
    return model, config.to_dict()


def _loaded(
    kind: str, reference: Any, vision: dict[str, Any], layer: int, folder: Path, *, ignore: bool = True
) -> VisionTransformer:
    config = vit_config(vision, feature_layer=layer, **KINDS[kind][3])
    ignored = vit_unused(["vision_model.", ""], vision, config) if ignore else ()
    model = _Model(config).requires_grad_(False).eval()
    file = folder / "model.safetensors"
    save_file({name: value.contiguous() for name, value in reference.state_dict().items()}, file)
    plan = LoadPlan(model, _Rules(vision, config, ignored))  # type: ignore[arg-type]
    for name, value in reference.state_dict().items():
        plan.take(name, file, lambda _, value=value: value)  # type: ignore[misc]
    plan.finish([file])
    return model.tower


def _patches(pictures: np.ndarray, patch: int, side: int) -> Tensor:
    ops, edge = NumpyOps(), patch * side
    return torch.from_numpy(
        np.concatenate([ops.patchify(p[None, :edge, :edge], patch=patch) for p in pictures])
    )


@pytest.mark.parametrize(
    ("kind", "layer"), [("clip", -1), ("clip", -2), ("siglip", -1), ("siglip", -2), ("eva", -1)]
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
