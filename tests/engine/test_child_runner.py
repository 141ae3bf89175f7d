"""The runner in a child process, fed by serialised records, gives the same tokens."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine.runner_worker import RunnerJob

from mmcore.config import EngineConfig, KvCacheConfig
from mmcore.core.output import BlockCopy, ModelRunnerOutput, NewRequest, SchedulerOutput, TokenLogprobs
from mmcore.errors import RequestError
from mmcore.request import EncoderInput, PreparedRequest


class ChildRunner:
    """Stands in an engine where its `ModelRunner` was. Nothing but pickled records goes through the pipe."""

    def __init__(self, child: subprocess.Popen[bytes], job: RunnerJob) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        self._out, self._in = child.stdin, child.stdout
        self.num_bytes = 0
        self._send(job)

    def feed(self, *arguments: Any) -> None:
        self._send(("feed", *arguments))

    def forget(self, request: PreparedRequest) -> None:
        self._send(("forget", request))

    def submit(self, output: SchedulerOutput) -> ChildRunner:
        """Answers come in the order of the steps, so whoever asks for the oldest one's reads the next."""
        self._send(("submit", output))
        return self

    def result(self) -> ModelRunnerOutput:
        answer: ModelRunnerOutput = pickle.load(self._in)
        return answer

    def _send(self, message: object) -> None:
        data = pickle.dumps(message)
        self.num_bytes += len(data)
        self._out.write(data)
        self._out.flush()


@contextmanager
def child_runner(job: RunnerJob) -> Iterator[ChildRunner]:
    command = [sys.executable, "-c", "from engine.runner_worker import main; main()"]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent.parent)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ) as child:
        runner = ChildRunner(child, job)
        yield runner
        assert child.stdin is not None
        child.stdin.close()
        assert child.wait(timeout=60) == 0


def tokens_of(engine: Any, requests: tuple[PreparedRequest, ...]) -> dict[str, list[tuple[int, ...]]]:
    for request in requests:
        engine.add(request)
    answers = {}
    while engine.has_unfinished:
        for finished in engine.step().finished:
            assert finished.output.error is None
            answers[finished.output.request_id] = [o.token_ids for o in finished.output.outputs]
    return answers


def job_of(family: Any, knobs: Any) -> RunnerJob:
    info = family.registry.resolve(family.checkpoint.config)
    kv = KvCacheConfig(max_tokens=knobs.kv_tokens, tokens_per_block=knobs.block_size)
    config = EngineConfig(device="cpu", kv_cache=kv, max_batch_size=knobs.max_batch_size)
    return RunnerJob(info.target, str(family.folder), config)


@pytest.mark.parametrize("family", ["pictures", "sounds"])
def test_a_child_process_gives_the_same_tokens(drives: dict[str, Any], family: str, make_knobs: Any) -> None:
    """With chunks, preemption by a small cache, reuse, ``n``, beams, seeds, and a step of overlap."""
    drive = drives[family]
    requests = tuple(
        replace(r, sampling=r.sampling.model_copy(update={"n": 1 + index % 2}))
        for index, r in enumerate(drive.family.requests)
    )
    expected = tokens_of(drive.engine(make_knobs(reuse=False)), requests)
    assert all(ids for sequences in expected.values() for ids in sequences)
    knobs = make_knobs(
        max_num_tokens=33, max_batch_size=5, block_size=8, kv_tokens=224, encoder_items=4, depth=1
    )
    engine = drive.engine(knobs)
    with child_runner(job_of(drive.family, knobs)) as runner:
        engine._runner = runner
        assert tokens_of(engine, requests) == expected
        assert runner.num_bytes > 10_000


# ------------------------------------------------------------------ the records by themselves


def same(one: Any, other: Any) -> bool:
    """Equal in type and content, records and arrays included."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return bool(one.dtype == other.dtype and np.array_equal(one, other))
    if is_dataclass(one) and not isinstance(one, type):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return bool(one.keys() == other.keys() and all(same(one[key], other[key]) for key in one))
    if isinstance(one, Exception):
        return bool(one.args == other.args)
    return bool(one == other)


@pytest.mark.parametrize("family", ["pictures", "sounds"])
def test_requests_and_inputs_survive_the_pipe(drives: dict[str, Any], family: str) -> None:
    found = drives[family].family
    for request in found.requests:
        copy = pickle.loads(pickle.dumps(request))
        assert same(copy, request)
        for item in copy.items:
            data = found.pipeline.preprocess(item)
            assert isinstance(data, EncoderInput)
            assert same(pickle.loads(pickle.dumps(data)), data)


def test_step_records_survive_the_pipe(drives: dict[str, Any]) -> None:
    request = drives["pictures"].family.requests[1]
    output = SchedulerOutput(
        step=3,
        new_requests=[NewRequest(1, 0, request)],
        row_slots=[1],
        row_starts=[0],
        row_counts=[9],
        row_samples=[True],
        copies=[BlockCopy(1, 2)],
        cross_blocks=[[4, 5]],
        wanted=[("r1", 0)],
    )
    answer = ModelRunnerOutput(
        step=3,
        token_counts=[1, 0],
        token_ids=[7],
        logprobs={0: [TokenLogprobs(-0.5, 2.0, ((7, -0.5),))]},
        errors={2: RequestError("the second failed")},
    )
    for record in (output, answer):
        assert same(pickle.loads(pickle.dumps(record)), record)
    assert not same(replace(answer, token_ids=[8]), answer)
    assert not same(pickle.loads(pickle.dumps(replace(output, new_requests=[]))), output)
