"""Rows that were encoded elsewhere: a prepared request brings them, and no encoder runs for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from engine.bad_batch import PARAMS, Bench, noise, picture_prompt

from mmcore import LLM, KvCacheConfig
from mmcore.errors import EncoderOutputError, InputError, MMCoreError
from mmcore.request import PreparedItem, PreparedRequest, ReadyRows


def with_rows(request: PreparedRequest, rows: np.ndarray) -> PreparedRequest:
    """``request`` with its only item's rows, under a key of their own."""
    (item,) = request.items
    return replace(request, items=(replace(item, source=ReadyRows(rows), encoder_key=rows.tobytes()[:32]),))


def encoded_rows(llm: LLM) -> np.ndarray:
    """What the encoder gave last."""
    rows: Any = llm._engine._runner._encoder._rows
    return np.array(rows[max(rows)].numpy())


def test_ready_rows_give_the_same_answer_without_the_encoder(picture_family: Any) -> None:
    cache = KvCacheConfig(enable_block_reuse=False)
    with LLM(picture_family.folder, device="cpu", seed=0, kv_cache_config=cache) as llm:
        expected = llm.generate(picture_prompt(noise(7)), PARAMS)
        ready = with_rows(llm.preprocess(picture_prompt(noise(7))), encoded_rows(llm))
        alone = llm.generate(ready, PARAMS)
        prompts: list[Any] = [ready, picture_prompt(noise(7))]
        both = llm.generate(prompts, PARAMS)
        assert llm.stats.items_preprocessed == 1
    assert [out.token_ids for out in (alone, *both)] == [expected.token_ids] * 3


def test_evicted_ready_rows_are_taken_again(picture_family: Any) -> None:
    """At admission the rows are cached; another picture then takes their room."""
    item = picture_family.pipeline.prepare(picture_prompt(noise(7)), PARAMS, request_id="r").items[0]
    options: dict[str, Any] = {
        "encoder_cache_bytes": item.cost.output_bytes,
        "max_batch_size": 1,
        "kv_cache_config": KvCacheConfig(enable_block_reuse=False),
    }
    with LLM(picture_family.folder, device="cpu", seed=0, **options) as llm:
        expected = llm.generate(picture_prompt(noise(7)), PARAMS)
        ready = with_rows(llm.preprocess(picture_prompt(noise(7))), encoded_rows(llm))
        prompts: list[Any] = [ready, picture_prompt(noise(8)), ready, ready]
        outputs = llm.generate(prompts, PARAMS)
    assert [outputs[i].token_ids for i in (0, 2, 3)] == [expected.token_ids] * 3


BAD: dict[str, tuple[Callable[[np.ndarray], np.ndarray], type[MMCoreError], str]] = {
    "a row too few": (lambda rows: rows[:-1], InputError, "item 1 .*5, 64.*6 rows of 64"),
    "too narrow": (lambda rows: rows[:, :-1], InputError, "item 1 .*6, 63.*6 rows of 64"),
    "flat": (lambda rows: rows.reshape(-1), InputError, "item 1 .*384,.*6 rows of 64"),
    "integers": (lambda rows: rows.astype(np.int64), InputError, "item 1 .*int64.*floats"),
    "not finite": (lambda rows: rows * np.nan, EncoderOutputError, "not finite"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_rows_fail_alone(pictures_bench: Bench, case: str) -> None:
    spoil, error, message = BAD[case]
    request = pictures_bench.llm.preprocess(picture_prompt(noise(9)))
    item: PreparedItem = request.items[0]
    rows = np.ones((item.plan.rows, item.plan.width), np.float32)
    pictures_bench.expect(with_rows(request, spoil(rows)), error, message)
