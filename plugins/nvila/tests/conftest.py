"""A tiny checkpoint of each layout, opened here and by a composition of transformers' models.

transformers has no class for this family. `Reference` writes the published description down: its SigLIP,
Qwen2 and Llama, and between them tiles by Pillow, area interpolation by torch, and folding in plain loops.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, settings
from mmcore_nvila.adapter import NvilaAdapter
from mmcore_nvila.testing import VARIANTS, TinyShape, write_tiny_checkpoint
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from mmcore import LLM, KvCacheConfig
from mmcore.adapter import Adapter
from mmcore.inputs.checkpoint import Checkpoint
from mmcore.model.weights import Model, build_model, load_weights

transformers = pytest.importorskip("transformers")

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]

# The same profiles as the repository's own tests: a plugin's tests also run alone.
settings.register_profile("ci", max_examples=60, deadline=None, suppress_health_check=_SLOW, derandomize=True)
settings.register_profile("long", max_examples=5000, deadline=None, suppress_health_check=_SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

Box = tuple[int, int]
"""Tiles across and down."""


def stored(folder: Path) -> dict[str, Tensor]:
    """Every tensor, by its name in a flat file."""
    parts = sorted(folder.glob("*/*.safetensors"))
    found = dict(load_file(folder / "model.safetensors")) if not parts else {}
    for file in parts:
        found |= {f"{file.parent.name}.{name}": tensor for name, tensor in load_file(file).items()}
    return found


def below(weights: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): w for n, w in weights.items() if n.startswith(prefix)}


@dataclass(frozen=True)
class Reference:
    """The published description over one folder, in float32."""

    shape: TinyShape
    tower: Any
    projector: dict[str, Tensor]
    language: Any
    tokenizer: Any
    processor: Any

    @classmethod
    def open(cls, folder: Path, shape: TinyShape) -> Reference:
        config, weights = Checkpoint(folder).config, stored(folder)
        text = config.get("llm_cfg") or config["text_config"]
        vision = config.get("vision_tower_cfg") or config["vision_config"]
        kinds = {
            "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
            "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
        }
        make_config, make_model = kinds[shape.kind]
        language = make_model(make_config(**text)).eval()
        missing = language.load_state_dict(below(weights, "llm."), strict=False).missing_keys
        assert set(missing) <= ({"lm_head.weight"} if text["tie_word_embeddings"] else set())
        language.tie_weights()
        tower = transformers.SiglipVisionModel(transformers.SiglipVisionConfig(**vision)).eval()
        fill_tower(tower, below(weights, "vision_tower.vision_model."))
        top = folder if shape.flat else folder / "llm"
        pictures = folder if shape.flat else folder / "vision_tower"
        return cls(
            shape,
            tower,
            below(weights, "mm_projector.layers."),
            language,
            transformers.AutoTokenizer.from_pretrained(top),
            transformers.AutoImageProcessor.from_pretrained(pictures, backend="pil"),
        )

    # -------------------------------------------------------------- pictures

    def pixels(self, tiles: Sequence[Image.Image]) -> Tensor:
        """[tiles, 3, side, side]"""
        found = [self.processor(tile, return_tensors="np")["pixel_values"][0] for tile in tiles]
        return torch.stack([torch.as_tensor(tile) for tile in found])

    def box(self, picture: Image.Image) -> Box:
        """The closest aspect ratio, by trying all in the order of their areas."""
        fewest = 9 if self.shape.tiling == "dynamic_s2" else 1
        most = 12 if self.shape.flat or self.shape.tiling == "dynamic_s2" else 6
        boxes = [
            (i, j)
            for n in range(fewest, most + 1)
            for i in range(1, n + 1)
            for j in range(1, n + 1)
            if i * j == n
        ]
        width, height = picture.size
        best, gap = (1, 1), float("inf")
        for i, j in boxes:
            found = abs(width / height - i / j)
            if found < gap or (found == gap and width * height > 0.5 * self.shape.image**2 * i * j):
                best, gap = (i, j), found
        return best

    def cut(self, picture: Image.Image, box: Box) -> list[Image.Image]:
        side, (wide, tall) = self.shape.image, box
        whole = picture.resize((wide * side, tall * side))
        corners = [(x * side, y * side) for y in range(tall) for x in range(wide)]
        return [whole.crop((x, y, x + side, y + side)) for x, y in corners]

    def tiles(self, picture: Image.Image, alone: bool) -> list[Image.Image]:
        """What the tower sees of a picture, in order."""
        if not alone or self.shape.tiling == "resize":
            return [picture.resize((self.shape.image, self.shape.image))]
        box = self.box(picture)
        if self.shape.tiling == "dynamic_s2":
            return self.cut(picture, (1, 1)) + self.cut(picture, (2, 2)) + self.cut(picture, box)
        cut = self.cut(picture, box)
        return cut + (self.cut(picture, (1, 1)) if len(cut) > 1 else [])

    # -------------------------------------------------------------- rows

    @torch.inference_mode()
    def rows(self, picture: Image.Image, alone: bool) -> Tensor:
        """[rows, hidden]"""
        features = self.features(self.tiles(picture, alone))
        if self.shape.tiling != "dynamic_s2":
            return torch.cat([self.project(map_) for map_ in features]).flatten(0, -2)
        if not alone:
            return self.project(features[0].repeat(1, 1, 3)).flatten(0, -2)
        return self.scaled(features, self.box(picture)).flatten(0, 1)

    @torch.inference_mode()
    def frame_rows(self, frames: Sequence[Image.Image]) -> Tensor:
        return torch.cat([self.rows(frame, alone=False) for frame in frames])

    def features(self, tiles: Sequence[Image.Image]) -> Tensor:
        """[tiles, side, side, width]"""
        hidden: Tensor = self.tower(self.pixels(tiles), output_hidden_states=True).hidden_states[-2]
        return hidden.view(len(tiles), self.shape.side, self.shape.side, -1)

    def scaled(self, features: Tensor, box: Box) -> Tensor:
        """Three maps, each as large as the last, cut into blocks, projected and put together."""
        wide, tall = box
        maps = [merged(features[:1], (1, 1)), merged(features[1:5], (2, 2)), merged(features[5:], box)]
        size = maps[-1].shape[:2]
        channels_first = [map_.permute(2, 0, 1)[None] for map_ in maps]
        joined = torch.cat([F.interpolate(m, size=size, mode="area")[0] for m in channels_first])
        side, whole = self.shape.side, joined.permute(1, 2, 0)
        blocks = [
            self.project(whole[y * side : (y + 1) * side, x * side : (x + 1) * side])
            for y in range(tall)
            for x in range(wide)
        ]
        return merged(torch.stack(blocks), box)

    def project(self, map_: Tensor) -> Tensor:
        """[side, side, width] to [lines, columns, hidden]"""
        fold = 3 if "3x3" in self.shape.projector else 2
        more = -map_.shape[0] % fold
        padded = F.pad(map_, (0, 0, 0, more, 0, more))
        lines = range(0, padded.shape[0], fold)
        folded = torch.stack(
            [
                torch.stack(
                    [
                        torch.cat([padded[y + dy, x + dx] for dy in range(fold) for dx in range(fold)])
                        for x in lines
                    ]
                )
                for y in lines
            ]
        )
        x = self.norm(folded, 1)
        if fold == 3:
            x = self.norm(F.gelu(self.linear(x, 2)), 4)
            return self.linear(F.gelu(self.linear(x, 5)), 7)
        return self.linear(F.gelu(self.linear(x, 2)), 4)

    def norm(self, x: Tensor, layer: int) -> Tensor:
        weights = self.projector
        return F.layer_norm(x, x.shape[-1:], weights[f"{layer}.weight"], weights[f"{layer}.bias"], 1e-5)

    def linear(self, x: Tensor, layer: int) -> Tensor:
        return F.linear(x, self.projector[f"{layer}.weight"], self.projector[f"{layer}.bias"])

    # -------------------------------------------------------------- language

    def slots(self, rows: Sequence[Tensor], alone: bool) -> list[list[Tensor | str]]:
        """What stands in each picture's place: rows, and text that is embedded by itself."""
        tile = self.project(torch.zeros(self.shape.side, self.shape.side, self.width)).flatten(0, 1).shape[0]
        if self.shape.kind == "llama":
            return [[found, "\n"] for found in rows]
        if alone and self.shape.tiling == "dynamic":
            return [
                [part for rows_ in torch.split(found, tile) for part in (rows_, "\n", "\n")] for found in rows
            ]
        return [[found, "\n"] for found in rows]

    @property
    def width(self) -> int:
        return self.shape.vision_width * (3 if self.shape.tiling == "dynamic_s2" else 1)

    @torch.inference_mode()
    def logits(self, prompt: Sequence[Tensor | str], answer: Sequence[int]) -> Tensor:
        """[answer, vocabulary]: what follows each prefix of the answer, after texts and rows in order."""
        table = self.language.get_input_embeddings().weight
        ids = [part if isinstance(part, Tensor) else table[self.ids(part)] for part in prompt]
        embedded = torch.cat([*ids, table[list(answer)]])
        hidden = self.language.model(inputs_embeds=embedded[None]).last_hidden_state[0]
        found: Tensor = self.language.lm_head(hidden[-len(answer) - 1 : -1])
        return found

    def ids(self, text: str) -> list[int]:
        found: list[int] = self.tokenizer(text, add_special_tokens=False).input_ids
        return found


def fill_tower(tower: Any, weights: dict[str, Tensor]) -> None:
    """The name of the tower's inner module differs between versions of transformers."""
    names = {name.removeprefix("vision_model."): name for name in tower.state_dict()}
    kept = {names[name]: tensor for name, tensor in weights.items() if name in names}
    missing = tower.load_state_dict(kept, strict=False).missing_keys
    # The last block and the norm after it are not used, and a tiny checkpoint does not have them.
    last = f"layers.{tower.config.num_hidden_layers - 1}."
    assert all(last in name or "post_layernorm" in name or "head." in name for name in missing), missing


def merged(tiles: Tensor, box: Box) -> Tensor:
    """[tiles, lines, columns, width] to one map [lines, columns, width]."""
    wide, tall = box
    lines = [torch.cat(list(tiles[y * wide : (y + 1) * wide]), dim=1) for y in range(tall)]
    return torch.cat(lines, dim=0)


@dataclass(frozen=True, repr=False)
class Subject:
    """One tiny checkpoint, opened on both sides."""

    variant: str
    folder: Path
    adapter: Adapter
    llm: LLM
    reference: Reference
    model: Model

    def __repr__(self) -> str:
        return self.variant


@contextmanager
def opened(folder: Path, variant: str) -> Iterator[Subject]:
    checkpoint = Checkpoint(write_tiny_checkpoint(folder, variant))
    adapter = NvilaAdapter.from_config(checkpoint.config, checkpoint)
    model = build_model(adapter, torch.float32, torch.device("cpu"))
    load_weights(model, adapter, checkpoint.weight_files())
    cache = KvCacheConfig(max_tokens=8192)
    reference = Reference.open(folder, VARIANTS[variant])
    with LLM(folder, dtype="float32", device="cpu", max_num_tokens=96, kv_cache_config=cache) as llm:
        yield Subject(variant, folder, adapter, llm, reference, model)


@pytest.fixture(scope="session", params=VARIANTS)
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    with opened(tmp_path_factory.mktemp("nvila"), request.param) as found:
        yield found
