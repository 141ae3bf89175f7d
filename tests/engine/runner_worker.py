"""A model runner in a process of its own: it knows what came through its pipe, and nothing else.

First a `RunnerJob`, then messages ``("feed" | "forget" | "submit", *arguments)``, all pickled; each
``submit`` is answered by a `ModelRunnerOutput`. The adapter comes as ``module:Class``, the weights from the
checkpoint's path.
"""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass
from importlib import import_module
from typing import BinaryIO

import torch

from mmcore.adapter import Adapter
from mmcore.config import EngineConfig
from mmcore.engine_builder import build_runner, choose_placement
from mmcore.inputs.checkpoint import Checkpoint
from mmcore.model.weights import build_model, load_weights
from mmcore.runner.model_runner import ModelRunner


@dataclass(frozen=True)
class RunnerJob:
    """What a runner is built from."""

    adapter: str
    """``module:Class``."""
    checkpoint: str
    config: EngineConfig


def build(job: RunnerJob) -> ModelRunner:
    module, _, name = job.adapter.partition(":")
    checkpoint = Checkpoint(job.checkpoint)
    adapter: Adapter = getattr(import_module(module), name).from_config(checkpoint.config, checkpoint)
    place = choose_placement(job.config, adapter)
    model = build_model(adapter, place.dtype, place.device)
    load_weights(model, adapter, checkpoint.weight_files())
    return build_runner(adapter, model, job.config)[0]


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Until the pipe is closed."""
    torch.set_num_threads(1)
    runner = build(pickle.load(source))
    while True:
        try:
            what, *arguments = pickle.load(source)
        except EOFError:
            return
        if what == "submit":
            pickle.dump(runner.submit(*arguments).result(), sink)
            sink.flush()
        else:
            getattr(runner, what)(*arguments)


def main() -> None:
    serve(sys.stdin.buffer, sys.stdout.buffer)
