"""One adapter over one checkpoint, opened in the ways that laws need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack, redirect_stderr
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from mmcore.adapter import Adapter, AdapterFactory, CheckpointFiles, Fusion
from mmcore.engine import Engine
from mmcore.errors import PromptError
from mmcore.inputs.checkpoint import Checkpoint
from mmcore.inputs.pipeline import InputPipeline
from mmcore.manifest import AdapterInfo
from mmcore.model.weights import Model, build_model, load_weights
from mmcore.plugins import PluginRegistry, load_plugins
from mmcore.plugins.records import FoundPlugin, PluginOrigin
from mmcore.request import MediaPart, Message, PreparedRequest, RequestOutput, TextPart
from mmcore.sampling_params import SamplingParams
from mmcore.testing.answers import Room, build_asker, run
from mmcore.testing.family import Case, Family, Preprocessing, Reference
from mmcore.testing.samples import Ask

ANSWER = SamplingParams(max_tokens=6, ignore_eos=True, temperature=0.0, logprobs=4)

MOST_ENGINES = 8


class Subject:
    """What laws are about. Engines and models are built when first asked for and kept.

    ``worker`` is a process of its own, which shares nothing with this one: subjects may share it.
    """

    def __init__(
        self,
        info: AdapterInfo,
        adapter: Adapter,
        family: Family,
        case: Case,
        folder: Path,
        worker: Executor | None = None,
    ) -> None:
        self.info = info
        self.adapter = adapter
        self.family = family
        self.case = case
        self.folder = folder
        self.checkpoint = Checkpoint(folder)
        self._models: dict[torch.dtype, Model] = {}
        self._engines: dict[Room, Engine] = {}
        self._numbers = count()
        self._stack = ExitStack()
        self._worker = worker

    @classmethod
    def open(
        cls, info: AdapterInfo, family: Family, case: Case, folder: Path, worker: Executor | None = None
    ) -> Subject:
        """Write the case's checkpoint into ``folder`` and let the adapter's factory read it."""
        checkpoint = Checkpoint(case.write(folder))
        adapter = factory_of(info).from_config(checkpoint.config, checkpoint)
        return cls(info, adapter, family, case, checkpoint.path, worker)

    def __repr__(self) -> str:
        return f"{self.info.name} ({self.case.name})"

    def __enter__(self) -> Self:
        if self.case.tiny:
            self._stack.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @cached_property
    def factory(self) -> AdapterFactory:
        return factory_of(self.info)

    # -------------------------------------------------------------- models and engines

    @property
    def model(self) -> Model:
        """The weights in float32 on the CPU."""
        return self.model_in(torch.float32)

    def model_in(self, dtype: torch.dtype) -> Model:
        if dtype not in self._models:
            model = build_model(self.adapter, dtype, torch.device("cpu"))
            load_weights(model, self.adapter, self.checkpoint.weight_files())
            self._models[dtype] = model
        return self._models[dtype]

    @cached_property
    def pipeline(self) -> InputPipeline:
        return InputPipeline(self.adapter, self.checkpoint)

    @cached_property
    def worker(self) -> Executor:
        return self._stack.enter_context(spawned_worker()) if self._worker is None else self._worker

    def engine(self, room: Room) -> Engine:
        """The last ones are kept for the next law that asks for the same room."""
        if room not in self._engines:
            while len(self._engines) >= MOST_ENGINES:
                del self._engines[next(iter(self._engines))]
            self._engines[room] = build_asker(self.adapter, self.model, self.pipeline, room)
        return self._engines[room]

    def prepared(
        self, ask: Ask, *, salt: str | None = None, sampling: SamplingParams = ANSWER
    ) -> PreparedRequest:
        """Without a ``salt`` it shares nothing with any other request."""
        number = next(self._numbers)
        salt = f"alone {number}" if salt is None else salt
        return self.pipeline.prepare_chat(ask.messages(), sampling, request_id=f"r{number}", cache_salt=salt)

    def answers(
        self,
        asks: Sequence[Ask],
        room: Room | None = None,
        *,
        salt: str | None = None,
        sampling: SamplingParams = ANSWER,
    ) -> list[RequestOutput]:
        """Of all asks at once, greedy, with log-probabilities."""
        requests = [self.prepared(ask, salt=salt, sampling=sampling) for ask in asks]
        return run(self.engine(room or Room()), requests)

    def first_links(self, requests: Sequence[PreparedRequest], room: Room) -> list[RequestOutput]:
        """Answers, without what a chain makes of them."""
        return run(self.engine(room), requests, chains=False)

    @cached_property
    def reference(self) -> Reference:
        assert self.case.reference is not None, "the case names no reference"
        with redirect_stderr(StringIO()):  # progress bars
            return self.case.reference(self.folder)

    @cached_property
    def preprocessing(self) -> Preprocessing:
        assert self.case.preprocessing is not None, "the case names no published processor"
        with redirect_stderr(StringIO()):
            return self.case.preprocessing(self.folder)

    # -------------------------------------------------------------- what the family takes

    @property
    def max_items(self) -> int:
        """Media of one prompt, 3 where the family sets no limit of its own."""
        limits = self.adapter.inputs.limits.values()
        return min([limit.max_items for limit in limits if limit.max_items] or [3])

    @property
    def least_items(self) -> int:
        """A cross-attention family without a context stage answers about a medium; others may do without."""
        return int(self.adapter.fusion is Fusion.CROSS_ATTENTION and self.adapter.context is None)

    @property
    def is_interleaved(self) -> bool:
        return self.adapter.fusion is Fusion.INTERLEAVED

    @cached_property
    def takes_no_words(self) -> bool:
        """Its template refuses text in a message."""
        modality = self.adapter.inputs.modalities[0]
        try:
            self.adapter.prompt.render([Message("user", (MediaPart(modality), TextPart("a word")))])
        except PromptError:
            return True
        return False


def spawned_worker() -> Executor:
    """Starts its one process when it is first asked."""
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"))


def factory_of(info: AdapterInfo) -> AdapterFactory:
    """What `AdapterInfo.target` names, imported; of an extension, the base and the target over it."""
    if info.extends is not None:
        return ExtensionFactory(info, load_plugins())
    found: Any = FoundPlugin(PluginOrigin(info.name, "", ""), info.target).load()
    return found  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class ExtensionFactory:
    """Implements `mmcore.adapter.AdapterFactory` for an adapter that extends another."""

    info: AdapterInfo
    registry: PluginRegistry

    def from_config(self, config: Mapping[str, Any], files: CheckpointFiles) -> Adapter:
        return self.registry.load_adapter(self.info, config, files)
