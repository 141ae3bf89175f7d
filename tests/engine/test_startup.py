"""A start tells where its seconds went."""

from __future__ import annotations

import logging
import time
from importlib.resources import files

import pytest

from mmcore import LLM
from mmcore.startup import Stages

STAGES = ["config", "model", "weights", "kv cache", "graphs", "digest", "inputs"]


def test_stages_of_one_name_add_up() -> None:
    ticks = iter([1.0, 3.0, 10.0, 10.5, 20.0, 21.0])
    stages = Stages(lambda: next(ticks))
    for name in ("read", "copy", "read"):
        with stages.stage(name):
            pass
    assert stages.seconds == {"read": 3.0, "copy": 0.5}


def test_a_start_is_the_sum_of_its_stages(caplog: pytest.LogCaptureFixture) -> None:
    """What lies between the stages is small beside them."""
    begin = time.perf_counter()
    with caplog.at_level(logging.INFO, "mmcore.startup"), LLM(str(files("mmcore_qwen2vl") / "reader")) as llm:
        whole = time.perf_counter() - begin
        seconds = llm._engine.startup
    assert list(seconds) == STAGES
    assert 0.5 * whole <= sum(seconds.values()) <= whole
    assert caplog.records[0].getMessage().startswith("ready after")
