"""Chains of requests: the front runs each link, the scheduler sees ordinary requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from mmcore.adapter import FollowUp, Generation
from mmcore.async_engine import AsyncEngine
from mmcore.config import EngineConfig
from mmcore.engine_builder import assemble
from mmcore.request import PreparedRequest, Result
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


@pytest.mark.parametrize("name", ["pictures", "sounds"])
def test_links_run_under_one_handle_and_reuse_the_media(drives: Any, name: str) -> None:
    family = drives[name].family
    adapter = replace(family.adapter, decoding=Chained(family.adapter.decoding, links=3))
    engine = assemble(adapter, family.checkpoint, family.model, EngineConfig(device="cpu"), family.registry)
    front = AsyncEngine(engine, prepare_workers=2)
    request = next(r for r in family.requests if r.items)
    params = SamplingParams(max_tokens=2, ignore_eos=True)
    submit: Callable[[str], Any] = lambda request_id: front.submit(  # noqa: E731
        request_id, lambda: replace(request, request_id=request_id, sampling=params)
    )
    outputs = [handle.result(60) for handle in [submit("a"), submit("b")]]
    front.shutdown()
    for output in outputs:
        assert output.text == "3 links"
        assert output.outputs[0].fields["counts"] == (2, 3, 4)
        assert output.encoded_items == 0, "the last link finds the media's rows, or what came of them, cached"
    assert engine.stats.requests_finished == 6
    assert engine.stats.scheduler.encoder_misses == 1
