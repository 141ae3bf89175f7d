"""Engines that the laws ask: a request that fails leaves them ready for the next one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from mmcore_qwen2vl.conformance import FAMILY

from mmcore.adapter import MediaOps
from mmcore.errors import RequestError
from mmcore.plugins import load_plugins
from mmcore.request import DecodedMedia, EncoderInput, ItemPlan
from mmcore.testing.samples import Ask, Picture
from mmcore.testing.subject import Subject


@dataclass(frozen=True, slots=True)
class NoTall:
    """A processor that fails for pictures taller than wide."""

    inner: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def with_options(self, options: Any) -> NoTall:
        return NoTall(self.inner.with_options(options))

    def preprocess(self, media: DecodedMedia, plan: ItemPlan, ops: MediaOps) -> EncoderInput:
        if media.data.shape[0] > media.data.shape[1]:
            raise ValueError("too tall")
        found: EncoderInput = self.inner.preprocess(media, plan, ops)
        return found


def test_the_next_ask_is_answered_after_one_that_failed(tmp_path: Path) -> None:
    info = load_plugins().resolve({}, FAMILY.adapter)
    with Subject.open(info, FAMILY, FAMILY.cases[0], tmp_path) as subject:
        subject.adapter = replace(subject.adapter, inputs=NoTall(subject.adapter.inputs))
        with pytest.raises(RequestError, match="preprocessing failed: ValueError: too tall"):
            subject.answers([Ask((Picture(40, 80),))])
        (output,) = subject.answers([Ask((Picture(80, 40),))])
    assert output.finished
