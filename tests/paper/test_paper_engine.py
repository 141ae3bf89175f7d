"""Paper families through the whole engine, its pool and output processor included, with `ToyRunner` last."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from paper.asks import Ask
from paper.families import FAMILIES
from paper.toy_house import Answer, Room, ToyHouse

from mmcore.engine import Engine
from mmcore.inputs.pool import PreprocessPool
from mmcore.item_feeder import ItemFeeder
from mmcore.request import Result

ASKS = (Ask((2, "what is it"), 12), Ask((1, "what"), 12, temperature=0.7), Ask((2, "x"), 5, language=66))


class Silence:
    def observe(self, hook: str, **arguments: Any) -> None:
        """Nobody listens."""


@pytest.fixture
def engine_of() -> Iterator[Callable[[ToyHouse], Engine]]:
    engines: list[Engine] = []

    def build(house: ToyHouse) -> Engine:
        wake = threading.Event()
        runner: Any = house.runner
        pool = PreprocessPool(house.pipeline.preprocess, workers=2, capacity=4, wake=wake)
        engine = Engine(
            adapter=house.adapter,
            max_seq_len=512,
            scheduler=house.scheduler,
            runner=runner,
            pipeline=house.pipeline,
            feeder=ItemFeeder(pool, window=4, timeout=20.0),
            observers=Silence(),
            wake=wake,
        )
        engines.append(engine)
        return engine

    yield build
    for engine in engines:
        engine.close()


def answers_of(engine: Engine, seconds: float = 20.0) -> dict[str, Answer]:
    """Steps until all chains have ended."""
    answers: dict[str, Answer] = {}
    deadline = time.monotonic() + seconds
    while engine.has_unfinished and time.monotonic() < deadline:
        for done in engine.step().finished:
            name, before = done.output.request_id, answers.get(done.output.request_id, Answer())
            told = sum(len(link[0]) for link in before.links)  # a chain's output holds all its links
            ids = tuple(completion.token_ids[told:] for completion in done.output.outputs)
            first = done.output.outputs[0]
            result = Result(first.text, tuple(first.fields.items()))
            answers[name] = Answer((*before.links, ids), result)
            if done.follow_up is not None:
                engine.add(engine.pipeline.prepare_follow_up(done.prepared, done.follow_up), done)
    return answers


@pytest.mark.parametrize("family", FAMILIES)
def test_the_engine_answers_as_the_parts_do(family: str, engine_of: Callable[[ToyHouse], Engine]) -> None:
    alone = ToyHouse(FAMILIES[family], Room())
    for number, ask in enumerate(ASKS):
        alone.ask(str(number), ask)
    house = ToyHouse(FAMILIES[family], Room(tokens=26))
    engine = engine_of(house)
    for number, ask in enumerate(ASKS):
        prompt = ask.prompt(house.adapter)
        engine.add(house.pipeline.prepare(prompt, ask.sampling, request_id=str(number)))
    assert answers_of(engine) == alone.run()
