"""One adapter over one checkpoint, opened in the ways that laws need."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from mmcore.adapter import Adapter
from mmcore.config import KvCacheConfig
from mmcore.inputs.checkpoint import Checkpoint
from mmcore.inputs.pipeline import InputPipeline
from mmcore.llm import LLM
from mmcore.manifest import AdapterInfo
from mmcore.model.weights import Model, build_model, load_weights
from mmcore.testing.family import Case, Family


class Subject:
    """What laws are about. Engines and models are built when first asked for and kept."""

    def __init__(self, info: AdapterInfo, adapter: Adapter, family: Family, case: Case, folder: Path) -> None:
        self.info = info
        self.adapter = adapter
        self.family = family
        self.case = case
        self.folder = folder
        self.checkpoint = Checkpoint(folder)
        self._engines: dict[tuple[tuple[str, Any], ...], LLM] = {}
        self._stack = ExitStack()

    def __repr__(self) -> str:
        return f"{self.info.name} ({self.case.name})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @cached_property
    def model(self) -> Model:
        """The weights in float32 on the CPU."""
        model = build_model(self.adapter, torch.float32, torch.device("cpu"))
        load_weights(model, self.adapter, self.checkpoint.weight_files())
        return model

    @cached_property
    def pipeline(self) -> InputPipeline:
        return InputPipeline(self.adapter, self.checkpoint)

    def llm(self, *, kv_tokens: int = 8192, reuse: bool = True, **options: Any) -> LLM:
        """An engine with these options, kept for the next law that asks for the same."""
        key = (("kv_tokens", kv_tokens), ("reuse", reuse), *sorted(options.items()))
        if key not in self._engines:
            cache = KvCacheConfig(max_tokens=kv_tokens, enable_block_reuse=reuse)
            llm = LLM(self.folder, dtype="float32", device="cpu", kv_cache_config=cache, **options)
            self._engines[key] = self._stack.enter_context(llm)
        return self._engines[key]

    # -------------------------------------------------------------- what the family takes

    @property
    def max_items(self) -> int:
        """Media of one prompt, 3 where the family sets no limit of its own."""
        limits = self.adapter.inputs.limits.values()
        return min([limit.max_items for limit in limits if limit.max_items] or [3])

    @property
    def least_items(self) -> int:
        """A cross-attention family answers about a medium; others may do without."""
        from mmcore.adapter import Fusion

        return int(self.adapter.fusion is Fusion.CROSS_ATTENTION)

    @cached_property
    def takes_no_words(self) -> bool:
        """Its template refuses text in a message."""
        from mmcore.errors import PromptError
        from mmcore.request import MediaPart, Message, TextPart

        modality = self.adapter.inputs.modalities[0]
        try:
            self.adapter.prompt.render([Message("user", (MediaPart(modality), TextPart("a word")))])
        except PromptError:
            return True
        return False
