"""Chains of requests: the front runs each link, the scheduler sees ordinary requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from threading import Event
from typing import Any

import pytest

from mmcore.adapter import FollowUp, Generation
from mmcore.async_engine import AsyncEngine
from mmcore.config import EngineConfig
from mmcore.engine import Engine
from mmcore.engine_builder import assemble
from mmcore.errors import MediaMissError
from mmcore.request import PreparedRequest, Result
from mmcore.request_handle import RequestHandle
from mmcore.sampling_params import SamplingParams


@dataclass(frozen=True)
class Chained:
    """The family's decoding, run ``links`` times with one token more each time."""

    inner: Any
    links: int

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def finish(self, generation: Generation) -> Result:
        before = dict(generation.previous.fields)["counts"] if generation.previous else ()
        counts = (*before, len(generation.ids))
        return Result(f"{len(counts)} links", (("counts", counts),))

    def follow_up(self, request: PreparedRequest, result: Result) -> FollowUp | None:
        counts = dict(result.fields)["counts"]
        if len(counts) == self.links:
            return None
        assert request.sampling.max_tokens is not None
        longer = request.sampling.model_copy(update={"max_tokens": request.sampling.max_tokens + 1})
        return FollowUp(sampling=longer)


@dataclass
class ChainFront:
    """A family's requests, each a chain of three links."""

    front: AsyncEngine
    engine: Engine
    request: PreparedRequest

    def submit(self, request_id: str, *, stream: bool = False, logprobs: int | None = None) -> RequestHandle:
        params = SamplingParams(max_tokens=2, ignore_eos=True, logprobs=logprobs)
        prepared = replace(self.request, request_id=request_id, sampling=params)
        return self.front.submit(request_id, lambda: prepared, stream=stream)


@pytest.fixture(params=["pictures", "sounds"])
def chains(drives: Any, request: pytest.FixtureRequest) -> Iterator[ChainFront]:
    family = drives[request.param].family
    adapter = replace(family.adapter, decoding=Chained(family.adapter.decoding, links=3))
    engine = assemble(adapter, family.checkpoint, family.model, EngineConfig(device="cpu"), family.registry)
    front = AsyncEngine(engine, prepare_workers=2)
    yield ChainFront(front, engine, next(r for r in family.requests if r.items))
    front.shutdown()
    assert not engine.has_unfinished
    assert engine.stats.scheduler.running == engine.stats.scheduler.waiting == 0


def test_links_run_under_one_handle_and_reuse_the_media(chains: ChainFront) -> None:
    outputs = [handle.result(60) for handle in [chains.submit("a"), chains.submit("b")]]
    for output in outputs:
        assert output.text == "3 links"
        assert output.outputs[0].fields["counts"] == (2, 3, 4)
    assert sum(output.encoded_items for output in outputs) == 1
    assert chains.engine.stats.requests_finished == 6
    assert chains.engine.stats.scheduler.encoder_misses == 1


def test_the_output_of_a_chain_is_that_of_all_its_links(chains: ChainFront) -> None:
    before = time.monotonic()
    output = chains.submit("a").result(60)
    assert len(output.token_ids) == 2 + 3 + 4
    assert output.prompt_token_ids == 3 * chains.request.token_ids
    assert output.cached_tokens <= len(output.prompt_token_ids)
    moments = list(asdict(output.timings).values())
    assert [before, *moments] == sorted([before, *moments]), "arrival of the first link, end of the last"
    assert output.outputs[0].finish_reason == "length"


def test_every_token_of_a_chain_has_its_logprobs(chains: ChainFront) -> None:
    completion = chains.submit("a", logprobs=2).result(60).outputs[0]
    scores = completion.logprobs
    assert scores is not None
    assert len(scores) == len(completion.token_ids) == 2 + 3 + 4
    chosen = [scores[n][token].logprob for n, token in enumerate(completion.token_ids)]
    assert completion.cumulative_logprob == pytest.approx(sum(chosen))


def test_a_stream_sees_what_each_link_came_to(chains: ChainFront) -> None:
    seen = list(chains.submit("a", stream=True))
    counts = [output.outputs[0].fields.get("counts") for output in seen]
    assert list(dict.fromkeys(filter(None, counts))) == [(2,), (2, 3), (2, 3, 4)]
    lengths = [len(output.token_ids) for output in seen]
    assert lengths == sorted(lengths)
    assert [output.finished for output in seen] == [False] * (len(seen) - 1) + [True]
    assert {output.outputs[0].finish_reason for output in seen[:-1] if output.outputs[0].fields} == {None}


def hold_back(chains: ChainFront, monkeypatch: pytest.MonkeyPatch, then: Callable[[], None]) -> Event:
    """Preparing a second link sets the event that is given back, and calls ``then`` before it goes on."""
    prepare, reached = chains.engine.pipeline.prepare_follow_up, Event()

    def prepare_late(request: PreparedRequest, follow_up: FollowUp) -> PreparedRequest:
        reached.set()
        then()
        return prepare(request, follow_up)

    monkeypatch.setattr(chains.engine.pipeline, "prepare_follow_up", prepare_late)
    return reached


def test_aborted_between_two_links_it_gives_what_it_has(
    chains: ChainFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = Event()
    reached = hold_back(chains, monkeypatch, lambda: check(go_on.wait(30)))
    handle = chains.submit("a")
    check(reached.wait(30))
    handle.abort()
    output = handle.result(30)
    go_on.set()
    assert (output.text, len(output.token_ids)) == ("1 links", 2)
    assert output.outputs[0].finish_reason == "abort"
    assert chains.submit("a").result(60).text == "3 links", "the id is free again, the late link forgotten"


def test_a_link_that_cannot_be_prepared_fails_its_request_alone(
    chains: ChainFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise MediaMissError("gone")

    hold_back(chains, monkeypatch, refuse)
    with pytest.raises(MediaMissError, match="gone"):
        chains.submit("a").result(30)
    monkeypatch.undo()
    assert chains.submit("b").result(60).text == "3 links"


def check(happened: bool) -> None:
    assert happened
