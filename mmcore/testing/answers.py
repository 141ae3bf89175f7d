"""Asks answered by an engine of a given room: what must not change an answer, varied."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from mmcore.adapter import Adapter
from mmcore.config import EngineConfig, KvCacheConfig
from mmcore.engine import Engine
from mmcore.engine_builder import build_runner, build_scheduler, max_seq_len
from mmcore.errors import MMCoreError, RequestError
from mmcore.inputs.pipeline import InputPipeline
from mmcore.inputs.pool import Outcome, ReadyItem
from mmcore.item_feeder import ItemFeeder
from mmcore.model.weights import Model
from mmcore.output_processor import FinishedRequest
from mmcore.request import PreparedItem, PreparedRequest, RequestOutput

BLOCK = 8
"""Tokens of a KV block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How much a step and the caches of an engine hold."""

    max_num_tokens: int = 4096
    kv_tokens: int = 8192
    encoder_cache_bytes: int = 1 << 24
    reuse: bool = True

    @property
    def config(self) -> EngineConfig:
        cache = KvCacheConfig(
            max_tokens=self.kv_tokens, tokens_per_block=BLOCK, enable_block_reuse=self.reuse
        )
        return EngineConfig(
            device="cpu",
            kv_cache=cache,
            max_batch_size=16,
            max_num_tokens=self.max_num_tokens,
            encoder_cache_bytes=self.encoder_cache_bytes,
        )


class InlinePool:
    """Preprocesses when polled, so that the same asks give the same steps."""

    def __init__(self, pipeline: InputPipeline) -> None:
        self._pipeline = pipeline
        self._jobs: list[tuple[str, int, PreparedItem]] = []

    def submit(self, request_id: str, index: int, item: PreparedItem) -> None:
        self._jobs.append((request_id, index, item))

    def poll(self) -> list[ReadyItem]:
        jobs, self._jobs = self._jobs, []
        return [(request_id, index, self._outcome(item)) for request_id, index, item in jobs]

    def _outcome(self, item: PreparedItem) -> Outcome:
        """An error is the request's own, as in `PreprocessPool`: the engine goes on to the next asks."""
        try:
            return self._pipeline.preprocess(item)
        except MMCoreError as error:
            return error
        except Exception as error:
            failed = RequestError(f"preprocessing failed: {type(error).__name__}: {error}")
            failed.__cause__ = error
            return failed

    def cancel(self, request_id: str) -> None:
        self._jobs = [job for job in self._jobs if job[0] != request_id]

    def close(self) -> None:
        self._jobs.clear()


def build_asker(adapter: Adapter, model: Model, pipeline: InputPipeline, room: Room) -> Engine:
    """An engine around a model that is loaded, on the CPU, without threads."""
    config = room.config
    runner, blocks = build_runner(adapter, model, config)
    return Engine(
        adapter=adapter,
        max_seq_len=max_seq_len(config, adapter),
        scheduler=build_scheduler(config, blocks),
        runner=runner,
        pipeline=pipeline,
        feeder=ItemFeeder(InlinePool(pipeline), window=64, timeout=60.0),
        observers=_Deaf(),
        wake=threading.Event(),
    )


class _Deaf:
    def observe(self, hook: str, **arguments: object) -> None:
        """Nobody is told."""


MOST_STEPS = 5000


def run(engine: Engine, requests: Sequence[PreparedRequest], *, chains: bool = True) -> list[RequestOutput]:
    """All at once, each chain to its end or without ``chains``. Raises the error of a request that fails."""
    done: dict[str, RequestOutput] = {}
    for request in requests:
        engine.add(request)
    for _ in range(MOST_STEPS):
        for finished in engine.step().finished:
            _go_on(engine, finished, done, chains)
        if not engine.has_unfinished:
            return [done[request.request_id] for request in requests]
    raise AssertionError(f"{len(requests) - len(done)} requests have no answer after {MOST_STEPS} steps")


def _go_on(engine: Engine, finished: FinishedRequest, done: dict[str, RequestOutput], chains: bool) -> None:
    if finished.output.error is not None:
        raise finished.output.error
    if finished.follow_up is None or not chains:
        done[finished.output.request_id] = finished.output
        return
    engine.add(engine.pipeline.prepare_follow_up(finished.prepared, finished.follow_up), finished)
