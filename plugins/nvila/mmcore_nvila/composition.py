"""The published description of NVILA and VILA 1.5 as a composition of transformers' models.

transformers has no class for this family. Between its towers, Qwen2 and Llama stand here tiles by Pillow,
area interpolation by torch and folding in plain loops; nothing of the adapter is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from mmcore.inputs.checkpoint import Checkpoint
from mmcore_nvila.towers import open_tower

Box = tuple[int, int]
"""Tiles across and down."""
Picture = Image.Image
Weights = Mapping[str, Tensor]


def stored(folder: Path) -> dict[str, Tensor]:
    """Every tensor, by its name in a flat file."""
    from safetensors.torch import load_file

    flat = folder / "model.safetensors"
    found = dict(load_file(flat)) if flat.is_file() else {}
    for file in () if found else sorted(folder.glob("*/*.safetensors")):
        found |= {f"{file.parent.name}.{name}": tensor for name, tensor in load_file(file).items()}
    return found


def below(weights: Weights, prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): w for n, w in weights.items() if n.startswith(prefix)}


@dataclass(frozen=True, slots=True)
class Description:
    """What ``config.json`` says; flat files leave the tiling and the projector to their name."""

    config: Mapping[str, Any]

    @property
    def text(self) -> dict[str, Any]:
        return dict(self.config.get("llm_cfg") or self.config["text_config"])

    @property
    def vision(self) -> dict[str, Any]:
        return dict(self.config.get("vision_tower_cfg") or self.config["vision_config"])

    @property
    def is_flat(self) -> bool:
        return "text_config" in self.config

    @property
    def tiling(self) -> str:
        lite = "lite" in self.config["model_type"]
        return str(self.config.get("image_aspect_ratio", "dynamic" if lite else "dynamic_s2"))

    @property
    def fold(self) -> int:
        named = self.config.get("mm_projector_cfg", {"mm_projector_type": self.config["model_type"]})
        return 3 if any(part in named["mm_projector_type"] for part in ("3x3", "lite")) else 2

    @property
    def tiles(self) -> tuple[int, int]:
        """Fewest and most of a picture that is cut."""
        return (9 if self.tiling == "dynamic_s2" else 1), self.config.get("max_tiles", 12)

    @property
    def frames(self) -> int:
        return int(self.config.get("num_video_frames", 8))


class Composition:
    """The models of one folder, in float32."""

    def __init__(self, folder: Path) -> None:
        import transformers

        library: Any = transformers
        weights = stored(folder)
        self.description = Description(Checkpoint(folder).config)
        self.language = _language(library, self.description.text, below(weights, "llm."))
        self.tower = open_tower(self.description, folder, below(weights, "vision_tower."))
        self.tokenizer = library.AutoTokenizer.from_pretrained(
            folder if self.description.is_flat else folder / "llm"
        )
        self._projector = below(weights, "mm_projector.layers.")

    # -------------------------------------------------------------- pictures

    def box(self, picture: Picture) -> Box:
        """The closest aspect ratio, by trying all in the order of their areas."""
        fewest, most = self.description.tiles
        counts = range(1, most + 1)
        boxes = [(i, j) for n in range(fewest, most + 1) for i in counts for j in counts if i * j == n]
        width, height = picture.size
        best, gap = (1, 1), float("inf")
        for i, j in boxes:
            found = abs(width / height - i / j)
            if found < gap or (found == gap and width * height > 0.5 * self.tower.image**2 * i * j):
                best, gap = (i, j), found
        return best

    def cut(self, picture: Picture, box: Box) -> list[Picture]:
        side, (wide, tall) = self.tower.image, box
        whole = picture.resize((wide * side, tall * side))
        corners = [(x * side, y * side) for y in range(tall) for x in range(wide)]
        return [whole.crop((x, y, x + side, y + side)) for x, y in corners]

    def tiles(self, picture: Picture, alone: bool) -> list[Picture]:
        """What the tower sees of a picture, in order; it is cut where it is the prompt's only one."""
        if not alone or self.description.tiling == "resize":
            return [picture.resize((self.tower.image, self.tower.image))]
        box = self.box(picture)
        if self.description.tiling == "dynamic_s2":
            return self.cut(picture, (1, 1)) + self.cut(picture, (2, 2)) + self.cut(picture, box)
        cut = self.cut(picture, box)
        return cut + (self.cut(picture, (1, 1)) if len(cut) > 1 else [])

    # -------------------------------------------------------------- rows

    @torch.inference_mode()
    def rows(self, picture: Picture, alone: bool) -> Tensor:
        """[rows, hidden]"""
        features = self.tower.features(self.tiles(picture, alone))
        if self.description.tiling != "dynamic_s2":
            return torch.cat([self.project(map_) for map_ in features]).flatten(0, -2)
        if not alone:
            return self.project(features[0].repeat(1, 1, 3)).flatten(0, -2)
        return self.scaled(features, self.box(picture)).flatten(0, 1)

    def scaled(self, features: Tensor, box: Box) -> Tensor:
        """Three maps, each as large as the last, cut into blocks, projected and put together."""
        wide, tall = box
        maps = [merged(features[:1], (1, 1)), merged(features[1:5], (2, 2)), merged(features[5:], box)]
        size = maps[-1].shape[:2]
        channels_first = [map_.permute(2, 0, 1)[None] for map_ in maps]
        joined = torch.cat([F.interpolate(m, size=size, mode="area")[0] for m in channels_first])
        side, whole = self.tower.side, joined.permute(1, 2, 0)
        blocks = [
            self.project(whole[y * side : (y + 1) * side, x * side : (x + 1) * side])
            for y in range(tall)
            for x in range(wide)
        ]
        return merged(torch.stack(blocks), box)

    def project(self, map_: Tensor) -> Tensor:
        """[side, side, width] to [lines, columns, hidden]"""
        folded = folds(map_, self.description.fold)
        x = self._norm(folded, 1)
        if self.description.fold == 3:
            x = self._norm(F.gelu(self._linear(x, 2)), 4)
            return self._linear(F.gelu(self._linear(x, 5)), 7)
        return self._linear(F.gelu(self._linear(x, 2)), 4)

    def _norm(self, x: Tensor, layer: int) -> Tensor:
        weights = self._projector
        return F.layer_norm(x, x.shape[-1:], weights[f"{layer}.weight"], weights[f"{layer}.bias"], 1e-5)

    def _linear(self, x: Tensor, layer: int) -> Tensor:
        return F.linear(x, self._projector[f"{layer}.weight"], self._projector[f"{layer}.bias"])

    # -------------------------------------------------------------- language

    def slots(self, rows: Sequence[Tensor], alone: bool) -> list[list[Tensor | str]]:
        """What stands in each picture's place: rows, and text that is embedded by itself."""
        if not (alone and self.description.tiling == "dynamic"):
            return [[found, "\n"] for found in rows]
        tile = -(-self.tower.side // self.description.fold)
        return [
            [part for rows_ in torch.split(found, tile**2) for part in (rows_, "\n", "\n")] for found in rows
        ]

    @torch.inference_mode()
    def after(self, prompt: Sequence[Tensor | str], answer: Sequence[int]) -> Tensor:
        """[answer, vocabulary]: what follows each prefix of the answer, after texts and rows in order."""
        table = self.language.get_input_embeddings().weight
        parts = [part if isinstance(part, Tensor) else table[self.ids(part)] for part in prompt]
        return self.following(torch.cat(parts), answer)

    @torch.inference_mode()
    def following(self, embedded: Tensor, answer: Sequence[int]) -> Tensor:
        """[answer, vocabulary] after a prompt of embeddings [tokens, hidden]."""
        table = self.language.get_input_embeddings().weight
        whole = torch.cat([embedded, table[list(answer)]])
        hidden = self.language.model(inputs_embeds=whole[None]).last_hidden_state[0]
        found: Tensor = self.language.lm_head(hidden[-len(answer) - 1 : -1])
        return found

    def ids(self, text: str) -> list[int]:
        found: list[int] = self.tokenizer(text, add_special_tokens=False).input_ids
        return found


def _language(library: Any, text: dict[str, Any], weights: Weights) -> Any:
    kinds = {
        "qwen2": (library.Qwen2Config, library.Qwen2ForCausalLM),
        "llama": (library.LlamaConfig, library.LlamaForCausalLM),
    }
    make_config, make_model = kinds[text["model_type"]]
    language = make_model(make_config(**text)).eval()
    missing = set(language.load_state_dict(weights, strict=False).missing_keys)
    assert missing <= ({"lm_head.weight"} if text["tie_word_embeddings"] else set())
    language.tie_weights()
    return language


def folds(map_: Tensor, fold: int) -> Tensor:
    """[side, side, width] to [lines, columns, fold * fold * width]; a rim is filled up with zeros."""
    more = -map_.shape[0] % fold
    padded = F.pad(map_, (0, 0, 0, more, 0, more))
    steps = range(0, padded.shape[0], fold)
    return torch.stack([torch.stack(list(_line(padded, y, steps, fold))) for y in steps])


def _line(map_: Tensor, y: int, steps: range, fold: int) -> Iterator[Tensor]:
    for x in steps:
        yield torch.cat([map_[y + dy, x + dx] for dy in range(fold) for dx in range(fold)])


def merged(tiles: Tensor, box: Box) -> Tensor:
    """[tiles, lines, columns, width] to one map [lines, columns, width]."""
    wide, tall = box
    lines = [torch.cat(list(tiles[y * wide : (y + 1) * wide]), dim=1) for y in range(tall)]
    return torch.cat(lines, dim=0)


def evenly(frames: np.ndarray, count: int) -> np.ndarray:
    """So many frames, from the first to the last."""
    chosen: np.ndarray = frames[np.round(np.linspace(0, len(frames) - 1, count)).astype(int)]
    return chosen
