"""An `LLM` around a family whose code fails for one request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from engine.bad_batch import PARAMS, SMALL, check_clean, check_text, hum, noise, picture_prompt, sound_prompt

from mmcore import LLM
from mmcore.adapter import Adapter
from mmcore.async_engine import AsyncEngine
from mmcore.config import EngineConfig
from mmcore.engine_builder import assemble
from mmcore.errors import MMCoreError, RequestError
from mmcore.model.weights import build_model, load_weights

VICTIM = "fail"
"""A request whose salt is this one meets the fault."""


class Odd(Exception):
    """What nobody expects."""


def is_victim(request: Any) -> bool:
    return bool(request.salt == VICTIM)


def odd() -> Any:
    raise Odd("0xdeadbeef")


def leave() -> Any:
    raise SystemExit(3)


def own() -> Any:
    raise RequestError("the family's own words")


@contextmanager
def running(family: Any, adapter: Adapter, **options: Any) -> Iterator[LLM]:
    """An `LLM` around another adapter over the family's checkpoint."""
    model = build_model(adapter, torch.float32, torch.device("cpu"))
    load_weights(model, adapter, family.checkpoint.weight_files())
    config = EngineConfig(device="cpu", **{"kv_cache": SMALL, **options})
    with LLM(family.folder, device="cpu", kv_cache_config=SMALL) as llm:
        llm._front.shutdown()
        llm._engine = assemble(adapter, family.checkpoint, model, config, family.registry)
        llm._pipeline = llm._engine.pipeline
        llm._front = AsyncEngine(llm._engine, prepare_workers=2)
        yield llm
        llm._front.shutdown()


def prompts_of(name: str) -> list[dict[str, Any]]:
    if name == "pictures":
        return [picture_prompt(noise(1)), {"prompt": "Hello"}, picture_prompt(noise(2))]
    return [sound_prompt((hum(n), 16_000)) for n in range(3)]


def fails_alone(llm: LLM, prompts: list[Any], error: type[MMCoreError], message: str, **params: Any) -> None:
    """The last prompt is the victim; the engine answers the others before, beside and after it."""
    *good, last = prompts
    bad = {**last, "cache_salt": VICTIM}
    asked = PARAMS.model_copy(update=params)
    alone = [llm.generate(prompt, PARAMS).token_ids for prompt in good]
    for _ in range(2):
        fresh = [{**prompt, "cache_salt": "fresh"} for prompt in good]
        outputs = llm.generate([fresh[0], bad, fresh[1], bad], [PARAMS, asked, PARAMS, asked])
        for output in outputs[1::2]:
            assert type(output.error) is error, repr(output.error)
            check_text(output.error, message)
        assert [outputs[0].token_ids, outputs[2].token_ids] == alone
        check_clean(llm)


FAULTS = [odd, leave, own]
