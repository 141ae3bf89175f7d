"""From a checkpoint and options to a running `Engine`."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from mmcore.adapter import Adapter, Fusion
from mmcore.config import EngineConfig
from mmcore.core.admission import SchedulerLimits
from mmcore.core.block_pool import BlockPool
from mmcore.core.encoder_cache_manager import EncoderCacheManager
from mmcore.core.kv_cache_manager import KVCacheManager
from mmcore.core.scheduler import Scheduler
from mmcore.engine import Engine
from mmcore.errors import ConfigError, UnsupportedOptionError
from mmcore.inputs.checkpoint import Checkpoint
from mmcore.inputs.hashing import block_key
from mmcore.inputs.hub import resolve_model
from mmcore.inputs.pipeline import InputPipeline
from mmcore.inputs.pool import PreprocessPool
from mmcore.item_feeder import ItemFeeder
from mmcore.model.random_weights import fill_random
from mmcore.model.weights import Model, build_model, load_weights
from mmcore.plugins import PluginRegistry, load_plugins
from mmcore.runner.batch import TableShape
from mmcore.runner.device_resizer import DeviceResizer
from mmcore.runner.kv_cache import make_kv_cache
from mmcore.runner.memory import cache_dtype, num_blocks
from mmcore.runner.model_runner import ModelRunner
from mmcore.startup import Stages

LAUNCH_SECONDS = 0.005
"""How long a step for a device waits at most for the prompt that is being prepared: longer than one takes."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the model runs, and in which dtype."""

    device: torch.device
    dtype: torch.dtype


def build_engine(
    model: str | os.PathLike[str],
    config: EngineConfig,
    *,
    revision: str | None = None,
    token: str | None = None,
    adapter: str | None = None,
) -> Engine:
    """Load ``model``, a folder or a hub name. Raises `ConfigError`, `CheckpointError`, `PluginError`."""
    _refuse_unbuilt(config)
    if not isinstance(model, str | os.PathLike):
        raise ConfigError(f"model is a folder or a name on the hub, not a {type(model).__name__}")
    name = model if isinstance(model, str) else Path(model)
    stages = Stages()
    with stages.stage("config"):
        folder = resolve_model(name, revision=revision, token=token)
        checkpoint = Checkpoint(folder, has_weights=config.load_format != "dummy")
        registry = load_plugins()
        info = registry.resolve(checkpoint.config, adapter)
        parts = registry.load_adapter(info, checkpoint.config, checkpoint)
    with stages.stage("model"):
        place = choose_placement(config, parts)
        weights = build_model(parts, place.dtype, place.device)
    with stages.stage("weights"):
        if config.load_format == "dummy":
            fill_random(weights)
        else:
            load_weights(weights, parts, checkpoint.weight_files())
    engine = assemble(parts, checkpoint, weights, config, registry, stages)
    stages.log()
    return engine


def assemble(
    adapter: Adapter,
    checkpoint: Checkpoint,
    model: Model,
    config: EngineConfig,
    registry: PluginRegistry,
    stages: Stages | None = None,
) -> Engine:
    """An engine around a model that is already loaded. ``stages`` are told what it takes."""
    stages = stages or Stages()
    with ThreadPoolExecutor(1, "mmcore-digest") as beside:
        digest = beside.submit(checkpoint.digest)  # a first start hashes the weights: seconds, on other cores
        with stages.stage("kv cache"):
            runner, blocks = build_runner(adapter, model, config)
        with stages.stage("graphs"):
            runner.warm_up()
        with stages.stage("digest"):
            digest.result()
    with stages.stage("inputs"):
        pipeline = build_pipeline(adapter, checkpoint, model, config, registry)
    workers, wake = config.num_workers, threading.Event()
    pool = PreprocessPool(pipeline.preprocess, workers=workers, capacity=4 * workers, wake=wake)
    return Engine(
        adapter=adapter,
        max_seq_len=max_seq_len(config, adapter),
        scheduler=build_scheduler(config, blocks),
        runner=runner,
        pipeline=pipeline,
        feeder=ItemFeeder(pool, window=4 * workers, timeout=config.preprocess_timeout),
        observers=registry,
        wake=wake,
        depth=int(runner.device.type == "cuda" if config.overlap is None else config.overlap),
        launch=partial(pipeline.turn.ahead, LAUNCH_SECONDS) if runner.device.type == "cuda" else nullcontext,
        startup=stages.seconds,
    )


def build_pipeline(
    adapter: Adapter, checkpoint: Checkpoint, model: Model, config: EngineConfig, registry: PluginRegistry
) -> InputPipeline:
    """What makes requests of prompts; it reads the tokenizer."""
    weight = next(model.parameters())
    return InputPipeline(
        adapter,
        checkpoint,
        policy=config.media,
        dtype=str(weight.dtype).removeprefix("torch."),
        fetch=registry.fetch_media,
        resize_threads=config.num_workers // 2,
        resize_device=DeviceResizer(weight.device) if weight.is_cuda else None,
    )


def choose_placement(config: EngineConfig, adapter: Adapter) -> Placement:
    """Resolve ``device="auto"`` and ``dtype="auto"``. Raises `ConfigError`."""
    has_cuda = torch.cuda.is_available()
    name = ("cuda" if has_cuda else "cpu") if config.device == "auto" else config.device
    if name == "cuda" and not has_cuda:
        raise ConfigError("device='cuda', but torch finds no CUDA device; use device='cpu' or 'auto'")
    dtype = _auto_dtype(name, adapter) if config.dtype == "auto" else config.dtype
    if dtype not in adapter.dtypes:
        raise ConfigError(
            f"dtype={dtype!r} is not sound for {adapter.name}; use one of {', '.join(adapter.dtypes)}"
        )
    return Placement(torch.device(name), getattr(torch, dtype))


def _auto_dtype(device: str, adapter: Adapter) -> str:
    """The family's first on a GPU; on a CPU float32, where half precision is slower than it is small."""
    if device == "cpu" and "float32" in adapter.dtypes:
        return "float32"
    return adapter.dtypes[0]


def max_seq_len(config: EngineConfig, adapter: Adapter) -> int:
    """Tokens of one sequence, prompt and answer. Raises `ConfigError` past the model's own limit."""
    limit = adapter.decoder.max_length
    if config.max_seq_len is not None and config.max_seq_len > limit:
        raise ConfigError(f"max_seq_len={config.max_seq_len} is past the model's limit of {limit} tokens")
    return config.max_seq_len or limit


def build_runner(adapter: Adapter, model: Model, config: EngineConfig) -> tuple[ModelRunner, int]:
    """The runner over a KV cache of as many blocks as fit, and their number."""
    weight = next(model.parameters())
    decoder, block_size = adapter.decoder, config.kv_cache.tokens_per_block
    blocks = num_blocks(decoder, config, weight.dtype, weight.device)
    kv = make_kv_cache(model.decoder, blocks, block_size, cache_dtype(config, weight.dtype))
    shape = TableShape(
        slots=config.max_batch_size,
        max_length=max_seq_len(config, adapter),
        block_size=block_size,
        axes=getattr(decoder.positions, "axes", 1),
        cross=adapter.fusion is Fusion.CROSS_ATTENTION,
    )
    graphs = config.cuda_graphs and weight.is_cuda
    return ModelRunner(adapter, model, kv, shape, graphs=graphs), blocks


def build_scheduler(config: EngineConfig, blocks: int) -> Scheduler:
    """The scheduler over ``blocks`` KV blocks."""
    cache = config.kv_cache
    kv = KVCacheManager(BlockPool(blocks, cache.tokens_per_block), block_key, cache.enable_block_reuse)
    limits = SchedulerLimits(
        max_batch_size=config.max_batch_size,
        max_beam_width=config.max_beam_width,
        max_num_tokens=config.max_num_tokens,
        encoder_work=config.encoder_work,
    )
    return Scheduler(limits, kv, EncoderCacheManager(config.encoder_cache_bytes))


def _refuse_unbuilt(config: EngineConfig) -> None:
    if config.kv_cache.host_cache_size:
        raise UnsupportedOptionError("KvCacheConfig.host_cache_size is not built yet; leave it 0")
