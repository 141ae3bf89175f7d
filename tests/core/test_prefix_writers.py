"""Prompts with a common beginning: who comes second waits for the first one's blocks, if it is worth it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mmcore.core.admission import SchedulerLimits
from mmcore.core.block_pool import BlockPool
from mmcore.core.encoder_cache_manager import EncoderCacheManager
from mmcore.core.kv_cache_manager import KVCacheManager
from mmcore.core.output import ModelRunnerOutput, SchedulerOutput
from mmcore.core.scheduler import Scheduler
from mmcore.core.sequence import StopConditions
from mmcore.inputs.hashing import block_key
from mmcore.request import PreparedRequest
from mmcore.sampling_params import SamplingParams

BLOCK = 4
STOP = StopConditions(stop_ids=frozenset(), max_tokens=3)


def ask(name: str, *ids: int) -> PreparedRequest:
    return PreparedRequest(request_id=name, token_ids=ids, sampling=SamplingParams(), root_key=b"root")


@pytest.fixture
def scheduler() -> Scheduler:
    kv = KVCacheManager(BlockPool(256, BLOCK), block_key)
    limits = SchedulerLimits(max_batch_size=8, max_num_tokens=64, encoder_work=1)
    return Scheduler(limits, kv, EncoderCacheManager(0))


def tokens_of(output: SchedulerOutput) -> list[int]:
    return list(output.row_counts)


def came_back(output: SchedulerOutput) -> ModelRunnerOutput:
    counts = [int(samples) for samples in output.row_samples]
    return ModelRunnerOutput(step=output.step, token_counts=counts, token_ids=[7] * sum(counts))


def run(scheduler: Scheduler, depth: int, look: Callable[[SchedulerOutput], Any]) -> None:
    flight: list[SchedulerOutput] = []
    while scheduler.has_unfinished or flight:
        flight.append(scheduler.schedule())
        look(flight[-1])
        scheduler.check_integrity()
        kept = depth if flight[-1].row_slots else 0
        while len(flight) > kept:
            done = flight.pop(0)
            scheduler.update(done, came_back(done))


@pytest.mark.parametrize("depth", [0, 1])
def test_a_common_beginning_is_computed_once(scheduler: Scheduler, depth: int) -> None:
    common = range(20)
    for n in range(4):
        scheduler.add(ask(f"r{n}", *common, 100 + n), STOP)
    computed: list[int] = []
    run(scheduler, depth, lambda output: computed.extend(count for count in output.row_counts if count > 1))
    assert computed == [21]  # the others compute one token each
    assert scheduler.stats().prefix_hit_tokens == 60


def test_a_short_common_beginning_is_not_worth_a_step(scheduler: Scheduler) -> None:
    for n in range(3):
        scheduler.add(ask(f"r{n}", *range(12), *range(100 * n, 100 * n + 9)), STOP)
    assert tokens_of(scheduler.schedule()) == [21, 21, 21]


def test_nobody_waits_for_one_that_has_ended(scheduler: Scheduler) -> None:
    scheduler.add(ask("first", *range(20), 1), STOP)
    scheduler.add(ask("second", *range(20), 2), STOP)
    first = scheduler.schedule()
    assert tokens_of(first) == [21]
    scheduler.abort("first")
    assert tokens_of(scheduler.schedule()) == [21]
    scheduler.check_integrity()


def test_others_pass_those_who_wait(scheduler: Scheduler) -> None:
    for name, ids in (("a", range(20)), ("b", range(20)), ("c", range(50, 70))):
        scheduler.add(ask(name, *ids, 9), STOP)
    assert tokens_of(scheduler.schedule()) == [21, 21]
