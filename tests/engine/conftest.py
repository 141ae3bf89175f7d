"""Tiny checkpoints of two families, and an engine that is driven by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import mmcore_blip2.testing
import mmcore_nougat.testing
import mmcore_nvila.testing
import mmcore_qwen2vl.testing
import mmcore_whisper.testing
import numpy as np
import pytest
import torch
from engine.asked import (
    caption_requests,
    page_requests,
    picture,
    picture_requests,
    sound,
    sound_requests,
    tile_requests,
    video_requests,
)
from engine.bad_batch import SMALL, Bench, check_clean, hum, noise, picture_prompt, sound_prompt
from PIL import Image

from mmcore import LLM
from mmcore.adapter import Adapter
from mmcore.config import EngineConfig, KvCacheConfig
from mmcore.core.scheduler import Scheduler
from mmcore.core.step_plan import StepPlan
from mmcore.engine import Engine
from mmcore.engine_builder import build_runner, build_scheduler, choose_placement
from mmcore.inputs.checkpoint import Checkpoint
from mmcore.inputs.pipeline import InputPipeline
from mmcore.inputs.pool import ReadyItem
from mmcore.item_feeder import ItemFeeder
from mmcore.model.weights import Model, build_model, load_weights
from mmcore.output_processor import FinishedRequest
from mmcore.plugins import PluginRegistry, load_plugins
from mmcore.request import PreparedItem, PreparedRequest

Trace = list[tuple[Any, np.ndarray]]
"""(token id, logits row it was chosen from) of each generated token; of a request for several sequences
(token ids, [cumulative logprob]) of each that is given."""


@dataclass(frozen=True, eq=False)
class Family:
    """One loaded tiny checkpoint and a pool of prepared requests about shared media."""

    folder: Path
    adapter: Adapter
    checkpoint: Checkpoint
    model: Model
    registry: PluginRegistry
    pipeline: InputPipeline
    requests: tuple[PreparedRequest, ...]


@dataclass(frozen=True, kw_only=True)
class Knobs:
    """What must not change an answer."""

    max_num_tokens: int = 4096
    max_batch_size: int = 32
    block_size: int = 16
    kv_tokens: int = 8192
    reuse: bool = True
    encoder_items: int = 64
    """Items of the largest size that the encoder cache holds."""
    window: int = 64
    """Items that are preprocessed ahead of the batch."""
    late: Mapping[int, int] = field(default_factory=dict)
    """Polls by which the n-th submitted item is late."""
    preempt: Mapping[int, int] = field(default_factory=dict)
    """At this step, the running sequence with this index (modulo their number) steps back."""
    arrivals: Mapping[int, int] = field(default_factory=dict)
    """Steps that pass before the n-th request is added."""
    depth: int = 0
    """Steps in flight while the next one is laid out."""
    graphs: bool = False
    """Decode steps go through their padded buffers; on a CPU nothing is captured."""
    kv_dtype: Literal["auto", "fp8"] = "auto"
    """The one that may change an answer, a little."""


class InlinePool:
    """Preprocesses when polled, some items some polls late."""

    def __init__(self, pipeline: InputPipeline, late: Mapping[int, int]) -> None:
        self._pipeline = pipeline
        self._late = late
        self._jobs: list[tuple[int, str, int, PreparedItem]] = []
        self._submitted = self._polls = 0

    def submit(self, request_id: str, index: int, item: PreparedItem) -> None:
        due = self._polls + self._late.get(self._submitted, 0)
        self._jobs.append((due, request_id, index, item))
        self._submitted += 1

    def poll(self) -> list[ReadyItem]:
        self._polls += 1
        due = [job for job in self._jobs if job[0] < self._polls]
        self._jobs = [job for job in self._jobs if job[0] >= self._polls]
        return [(request_id, index, self._pipeline.preprocess(item)) for _, request_id, index, item in due]

    def cancel(self, request_id: str) -> None:
        self._jobs = [job for job in self._jobs if job[1] != request_id]

    def close(self) -> None:
        self._jobs.clear()


class PreemptingScheduler(Scheduler):
    """Makes running sequences step back at chosen steps, as a full cache would."""

    victims: Mapping[int, int] = {}

    def _schedule_running(self, plan: StepPlan) -> int:
        running = self._table.running
        if running and plan.step in self.victims:
            self._rows.step_back(running[self.victims[plan.step] % len(running)])
        return super()._schedule_running(plan)


class Drive:
    """Runs requests through a fresh engine over a family's model, and records logits.

    ``sabotage`` is called with the engine before it runs: a seeded fault.
    """

    def __init__(self, family: Family) -> None:
        self.family = family

    def engine(self, knobs: Knobs) -> Engine:
        family = self.family
        largest = max((item.cost.output_bytes for r in family.requests for item in r.items), default=1)
        config = EngineConfig(
            device="cpu",
            kv_cache=KvCacheConfig(
                max_tokens=knobs.kv_tokens,
                tokens_per_block=knobs.block_size,
                enable_block_reuse=knobs.reuse,
                dtype=knobs.kv_dtype,
            ),
            max_batch_size=knobs.max_batch_size,
            max_num_tokens=knobs.max_num_tokens,
            encoder_cache_bytes=largest * knobs.encoder_items,
        )
        runner, blocks = build_runner(family.adapter, family.model, config)
        if knobs.graphs:
            runner.graphs = runner.make_graphs()
        runner._kv.key.fill_(torch.nan)  # whoever reads what nobody wrote shows it
        runner._kv.value.fill_(torch.nan)
        scheduler: Any = build_scheduler(config, blocks)
        scheduler.__class__ = PreemptingScheduler
        scheduler.victims = knobs.preempt
        return Engine(
            adapter=family.adapter,
            max_seq_len=family.adapter.decoder.max_length,
            scheduler=scheduler,
            runner=runner,
            pipeline=family.pipeline,
            feeder=ItemFeeder(InlinePool(family.pipeline, knobs.late), window=knobs.window, timeout=60.0),
            observers=family.registry,
            wake=threading.Event(),
            depth=knobs.depth,
        )

    def run(
        self,
        requests: Sequence[PreparedRequest],
        knobs: Knobs,
        sabotage: Callable[[Engine], None] = lambda engine: None,
    ) -> dict[str, Trace]:
        """Traces by request id. Asserts the scheduler's invariants after each step, and that all is freed."""
        engine = self.engine(knobs)
        sabotage(engine)
        traces = record_logits(engine)
        waiting = [(knobs.arrivals.get(n, 0), request) for n, request in enumerate(requests)]
        for step in range(20_000):
            for due, request in [entry for entry in waiting if entry[0] <= step]:
                engine.add(request)
                waiting.remove((due, request))
            if not waiting and not engine.has_unfinished:
                break
            report = engine.step()
            engine._scheduler.check_integrity()
            for finished in report.finished:
                if finished.output.error is not None:
                    raise finished.output.error
                note_finished(traces, finished)
        assert not engine.has_unfinished, "no progress"
        assert engine._runner._encoder.num_inputs == 0
        assert not engine._runner._encoder._bound
        return traces


def note_finished(traces: dict[str, Trace], finished: FinishedRequest) -> None:
    output = finished.output
    if finished.prepared.sampling.num_sequences == 1:
        assert output.token_ids == tuple(token for token, _ in traces[output.request_id])
        return
    traces[output.request_id] = [
        (one.token_ids, np.array([one.cumulative_logprob])) for one in output.outputs
    ]


def record_logits(engine: Engine) -> dict[str, Trace]:
    """Fills with each sampled token and its logits, by request id (of requests for one sequence)."""
    traces: dict[str, Trace] = {}
    sampling: Any = engine._runner._sampling
    sample = sampling.sample
    sampling.is_plain = lambda inputs: False  # so that all logits come by here

    def recorded(logits: torch.Tensor, inputs: Any, table: Any) -> Any:
        sampled = sample(logits, inputs, table)
        rows = logits.clone()  # what was banned is -inf by now
        for index, slot in enumerate(inputs.sample_slots.tolist()):
            if table.request(slot).sampling.num_sequences > 1:
                continue
            trace = traces.setdefault(table.request(slot).request_id, [])
            assert len(trace) == inputs.sample_positions[index], "a position was sampled twice or never"
            trace.append((int(sampled.token_ids[index]), rows[index].numpy()))
        return sampled

    sampling.sample = recorded
    return traces


def load_family(folder: Path, requests: Callable[[InputPipeline], Sequence[PreparedRequest]]) -> Family:
    registry = load_plugins()
    checkpoint = Checkpoint(folder)
    info = registry.resolve(checkpoint.config)
    adapter = registry.load_adapter(info, checkpoint.config, checkpoint)
    place = choose_placement(EngineConfig(device="cpu"), adapter)
    model = build_model(adapter, place.dtype, place.device)
    load_weights(model, adapter, checkpoint.weight_files())
    pipeline = InputPipeline(adapter, checkpoint)
    return Family(folder, adapter, checkpoint, model, registry, pipeline, tuple(requests(pipeline)))


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def picture_family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    folder = mmcore_qwen2vl.testing.write_tiny_checkpoint(tmp_path_factory.mktemp("pictures"))
    return load_family(folder, picture_requests)


@pytest.fixture(scope="session")
def video_family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    """The generation whose tower has windows and whose positions count seconds."""
    folder = mmcore_qwen2vl.testing.write_tiny_checkpoint(tmp_path_factory.mktemp("videos"), "2.5")
    return load_family(folder, video_requests)


@pytest.fixture(scope="session")
def tile_family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    """Cuts a picture into tiles, ordinary tokens between them; its placeholders have no embedding."""
    folder = mmcore_nvila.testing.write_tiny_checkpoint(tmp_path_factory.mktemp("tiles"), "nvila-lite")
    return load_family(folder, tile_requests)


@pytest.fixture(scope="session")
def sound_family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    folder = mmcore_whisper.testing.write_tiny_checkpoint(tmp_path_factory.mktemp("sounds"))
    return load_family(folder, sound_requests)


@pytest.fixture(scope="session")
def caption_family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    """Its text goes through an encoder of its own, into cross-attention."""
    folder = mmcore_blip2.testing.write_tiny_checkpoint(tmp_path_factory.mktemp("captions"), "t5")
    return load_family(folder, caption_requests)


@pytest.fixture(scope="session")
def page_family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    """A rule looks at each token of its answers."""
    folder = mmcore_nougat.testing.write_tiny_checkpoint(tmp_path_factory.mktemp("pages"))
    return load_family(folder, page_requests)


@pytest.fixture(scope="session")
def drives(
    picture_family: Family,
    video_family: Family,
    tile_family: Family,
    sound_family: Family,
    caption_family: Family,
    page_family: Family,
) -> dict[str, Drive]:
    families = {
        "pictures": picture_family,
        "videos": video_family,
        "tiles": tile_family,
        "sounds": sound_family,
        "captions": caption_family,
        "pages": page_family,
    }
    return {name: Drive(family) for name, family in families.items()}


@pytest.fixture
def llm(picture_family: Family) -> Iterator[LLM]:
    with LLM(picture_family.folder, device="cpu", seed=0, kv_cache_config=SMALL) as made:
        yield made


@pytest.fixture
def speech_llm(sound_family: Family) -> Iterator[LLM]:
    with LLM(sound_family.folder, device="cpu", seed=0, kv_cache_config=SMALL) as made:
        yield made


@pytest.fixture(scope="session")
def pictures_bench(picture_family: Family) -> Iterator[Bench]:
    """Shared by all tests of bad input: each leaves it as it was."""
    with LLM(picture_family.folder, device="cpu", seed=0, kv_cache_config=SMALL) as made:
        yield Bench(made, [picture_prompt(noise(1)), {"prompt": "Hello, who are you?"}])
        check_clean(made)


@pytest.fixture(scope="session")
def sounds_bench(sound_family: Family) -> Iterator[Bench]:
    with LLM(sound_family.folder, device="cpu", seed=0, kv_cache_config=SMALL) as made:
        yield Bench(made, [sound_prompt((hum(1), 16_000)), sound_prompt((hum(2), 16_000))])
        check_clean(made)


@pytest.fixture(scope="session")
def make_knobs() -> Callable[..., Knobs]:
    return Knobs


@pytest.fixture(scope="session")
def make_picture() -> Callable[[int, int, int], Image.Image]:
    return picture


@pytest.fixture(scope="session")
def make_sound() -> Callable[[int, float], tuple[np.ndarray, int]]:
    return sound


@pytest.fixture(scope="session")
def renamed() -> Callable[[PreparedRequest, str], PreparedRequest]:
    def rename(request: PreparedRequest, request_id: str) -> PreparedRequest:
        return replace(request, request_id=request_id)

    return rename
