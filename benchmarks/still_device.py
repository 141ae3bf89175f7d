"""An engine whose device answers at once: what is left of a step is the host's bookkeeping."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import torch
from torch import Tensor

from mmcore.adapter import Adapter
from mmcore.config import EngineConfig
from mmcore.engine import Engine
from mmcore.engine_builder import build_scheduler, max_seq_len
from mmcore.inputs.pipeline import InputPipeline
from mmcore.inputs.pool import ReadyItem
from mmcore.item_feeder import ItemFeeder
from mmcore.model.attention import KVCache
from mmcore.model.weights import build_model
from mmcore.plugins import PluginRegistry
from mmcore.request import PreparedItem
from mmcore.runner.batch import StepInputs, TableShape
from mmcore.runner.decode_step import DecodeColumns, Selected
from mmcore.runner.model_runner import ModelRunner

TOKEN = 1000
BLOCKS = 8192


class StillGraphs:
    """Stands where `DecodeGraphs` does: fills the columns that a captured step reads, computes nothing."""

    failure = None

    def __init__(self, runner: ModelRunner) -> None:
        self._shape = runner._table.shape
        self._last = runner._last
        self._columns: dict[int, DecodeColumns] = {}

    def run(self, inputs: StepInputs) -> Selected:
        rows = len(inputs.context_lens)
        if inputs.max_query_len == 1:
            size = -(-rows // 16) * 16
            if size not in self._columns:
                self._columns[size] = DecodeColumns(size, self._shape.max_blocks, 0, self._shape, self._last)
            self._columns[size].fill(inputs)
        count = len(inputs.sample_rows)
        logits = torch.zeros(count, dtype=torch.float32)
        slots = torch.from_numpy(inputs.sample_slots)
        return Selected(torch.full((count,), TOKEN), logits, logits.unsqueeze(1), slots)


class StillPool:
    """Gives each item at the next look."""

    def __init__(self, pipeline: InputPipeline) -> None:
        self._pipeline = pipeline
        self._ready: list[ReadyItem] = []

    def submit(self, request_id: str, index: int, item: PreparedItem) -> None:
        self._ready.append((request_id, index, self._pipeline.preprocess(item)))

    def poll(self) -> list[ReadyItem]:
        ready, self._ready = self._ready, []
        return ready

    def cancel(self, request_id: str) -> None:
        """Nothing is under way between two calls."""

    def close(self) -> None:
        """There are no threads."""


def still_engine(adapter: Adapter, pipeline: InputPipeline, registry: PluginRegistry) -> Engine:
    """Steps overlap as on a GPU; the model's weights and the KV cache take no memory."""
    config = EngineConfig(device="cpu", dtype="bfloat16")
    model = build_model(adapter, torch.bfloat16, torch.device("meta"))
    decoder, size = adapter.decoder, config.kv_cache.tokens_per_block
    nothing = torch.zeros(1, dtype=torch.bfloat16)
    cache = nothing.expand(decoder.num_layers, BLOCKS, size, decoder.num_kv_heads, decoder.head_dim)
    length = max_seq_len(config, adapter)
    shape = TableShape(config.max_batch_size, length, size, getattr(decoder.positions, "axes", 1))
    runner = ModelRunner(adapter, model, KVCache(key=cache, value=cache), shape, graphs=False)
    runner.graphs = StillGraphs(runner)  # type: ignore[assignment]

    def encode(tensors: Mapping[str, Tensor]) -> Tensor:
        rows = tensors["places"].shape[1] // 4
        return nothing.expand(rows, decoder.hidden_size)

    runner._encoder.graphs.run = encode  # type: ignore[method-assign]
    pool = StillPool(pipeline)
    return Engine(
        adapter=adapter,
        max_seq_len=length,
        scheduler=build_scheduler(config, BLOCKS),
        runner=runner,
        pipeline=pipeline,
        feeder=ItemFeeder(pool, window=64, timeout=60.0),
        observers=registry,
        wake=threading.Event(),
        depth=1,
    )
