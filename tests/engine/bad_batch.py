"""A batch of good, bad, good: the bad request fails alone, and nothing of it is left."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mmcore import LLM, KvCacheConfig, RequestOutput, SamplingParams
from mmcore.errors import MMCoreError

SMALL = KvCacheConfig(max_tokens=8192)
"""Of an `LLM` in tests: the default of 1 GiB takes a second to make."""
PARAMS = SamplingParams(max_tokens=6, ignore_eos=True, seed=5)
_HEAP_POINTER = re.compile(r"\b0x[0-9a-f]{4}|object at")
_salts = itertools.count()


def picture_prompt(media: Any, text: str = "What is it?", **more: Any) -> dict[str, Any]:
    return {"prompt": text, "multi_modal_data": {"image": media}, **more}


def sound_prompt(media: Any, **more: Any) -> dict[str, Any]:
    return {"prompt": "", "multi_modal_data": {"audio": media}, **more}


def noise(seed: int, width: int = 56, height: int = 84) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def hum(seed: int, rate: int = 16_000, seconds: float = 0.8) -> np.ndarray:
    """Some tones that a rate of 8 kHz can hold, faded in and out; float32 [n]."""
    rng = np.random.default_rng(seed)
    time = np.arange(int(rate * seconds)) / rate
    tones = sum(np.sin(2 * np.pi * f * time) for f in rng.uniform(100, 3000, 4))
    faded: np.ndarray = (0.2 * tones * np.sin(np.pi * time / seconds) ** 2).astype(np.float32)
    return faded


class Bench:
    """One `LLM`, two good prompts and their answers, each given alone."""

    def __init__(self, llm: LLM, good: Sequence[Mapping[str, Any]]) -> None:
        self.llm = llm
        self._good = good
        self._alone = [self.tokens(prompt) for prompt in good]

    def tokens(self, prompt: Any, params: SamplingParams = PARAMS) -> tuple[int, ...]:
        ids: tuple[int, ...] = self.llm.generate(prompt, params).token_ids
        return ids

    def expect(
        self,
        bad: Any,
        error: type[MMCoreError],
        message: str,
        params: SamplingParams | None = None,
        *,
        forbidden: str = "",
    ) -> MMCoreError:
        """``bad`` fails with exactly ``error`` in a batch and alone; its neighbours answer as always."""
        for output in self.run_beside_good(bad, params):
            assert type(output.error) is error, repr(output.error)
            check_text(output.error, message, forbidden)
            assert output.finished
            with pytest.raises(error):
                _ = output.text
        with pytest.raises(error, match=message) as caught:
            self.llm.generate(bad, params)
        check_clean(self.llm)
        return caught.value

    def run_beside_good(self, prompt: Any, params: SamplingParams | None = None) -> list[RequestOutput]:
        """The prompt twice in one batch with the good ones, which must answer as if they were alone."""
        salt = f"batch {next(_salts)}"  # so that the good ones are computed anew, beside the bad one
        good = [{**prompt, "cache_salt": salt} for prompt in self._good]
        outputs = self.llm.generate(
            [good[0], prompt, good[1], prompt], [PARAMS, params or PARAMS, PARAMS, params or PARAMS]
        )
        for output, alone in zip((outputs[0], outputs[2]), self._alone, strict=True):
            assert output.error is None
            assert output.token_ids == alone
        check_clean(self.llm)
        return [outputs[1], outputs[3]]


def check_text(error: BaseException | None, message: str, forbidden: str = "") -> None:
    """What, where and what to do; no heap pointer, no path that the caller did not give."""
    text = str(error)
    assert re.search(message, text), text
    assert not _HEAP_POINTER.search(text), text
    assert not forbidden or forbidden not in text, text


def check_clean(llm: LLM, seconds: float = 10.0) -> None:
    """The engine comes to rest, and holds nothing of any request."""
    engine, front = llm._engine, llm._front
    runner, feeder = engine._runner, engine._feeder
    pool: Any = feeder._pool
    deadline = time.monotonic() + seconds
    tables = (runner._table._requests, runner._sampling._slots)
    while engine.has_unfinished or front._handles or pool._running or pool._cancelled or any(tables):
        assert time.monotonic() < deadline, "the engine does not come to rest"
        time.sleep(0.001)
    engine._scheduler.check_integrity()
    stats = engine._scheduler.stats()
    assert (stats.running, stats.waiting) == (0, 0)
    assert stats.free_blocks == engine._scheduler._kv.pool.num_blocks
    assert len(engine._outputs) == 0
    assert not feeder._deadlines
    assert not feeder._unscheduled
    assert not feeder._waiting
    assert not pool._waiting
    assert not pool._ready
    assert runner._encoder.num_inputs == 0
    assert not runner._encoder._bound
