"""The paper families by name, each with a toy checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from paper import blip2, levels, llava, nougat, nvila, qwen2vl, whisper
from paper.toys import ToyFiles

from mmcore.adapter import Adapter
from mmcore.request import Modality


@dataclass(frozen=True)
class Family:
    module: ModuleType
    config: Mapping[str, Any]
    specials: tuple[str, ...]
    modalities: tuple[Modality, ...]

    @property
    def files(self) -> ToyFiles:
        return ToyFiles(self.specials)

    def adapter(self) -> Adapter:
        build: Callable[..., Adapter] = self.module.from_config
        return build(self.config, self.files)


IMAGE = ("image",)

FAMILIES = {
    "llava": Family(llava, {"side": 4, "tilings": [[1, 2], [2, 1], [2, 2]]}, ("</s>", "<image>"), IMAGE),
    "nvila": Family(nvila, {"max_tiles": 6}, ("</s>", "<image>", "<video>"), ("image", "video")),
    "qwen2vl": Family(qwen2vl, {}, ("</s>", "<|image_pad|>", "<|video_pad|>"), ("image", "video")),
    "blip2-opt": Family(
        blip2, {"num_query_tokens": 8, "text_config": {"model_type": "opt"}}, ("</s>", "<image>"), IMAGE
    ),
    "blip2-t5": Family(
        blip2,
        {"num_query_tokens": 8, "text_config": {"model_type": "t5"}},
        ("</s>", "<image>", "<pad>"),
        IMAGE,
    ),
    "whisper": Family(whisper, {}, ("</s>", "<start>", "<task>"), ("audio",)),
    "nougat": Family(nougat, {"rows": 37}, ("</s>", "<s>"), IMAGE),
    "levels": Family(levels, {"levels": 2}, ("</s>", "<image>"), IMAGE),
}
