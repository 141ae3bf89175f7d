"""Preprocessing, encoders and context stages that fail: one request fails, and nothing of it is cached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from engine.bad_batch import PARAMS, check_clean, picture_prompt, sound_prompt
from engine.faulty import FAULTS, VICTIM, fails_alone, leave, odd, own, prompts_of, running

from mmcore.errors import EncoderOutputError, MMCoreError, RequestError
from mmcore.request import EncoderInput


@dataclass(frozen=True)
class FaultyInputs:
    """Fails on the victim's medium, known by its plan; ``spoil`` gives what to return instead."""

    inner: Any
    spoil: Callable[[EncoderInput], Any] = field(compare=False)  # no part of a key

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def with_options(self, options: Any) -> Any:
        return self

    def measure(self, infos: Any, options: Any) -> Any:
        return self.inner.measure(infos, [self.inner] * len(infos))

    def preprocess(self, media: Any, plan: Any, ops: Any) -> Any:
        made = self.inner.preprocess(media, plan, ops)
        return self.spoil(made) if is_marked(media) else made


def is_marked(media: Any) -> bool:
    return bool((media.data == media.data.flat[0]).all())


def marked(name: str) -> dict[str, Any]:
    """A medium of one value: the victim's."""
    if name == "pictures":
        return picture_prompt(np.full((56, 84, 3), 7, np.uint8))
    return sound_prompt((np.full(8_000, 0.25, np.float32), 16_000))


def changed(made: EncoderInput, change: Callable[[np.ndarray], np.ndarray]) -> EncoderInput:
    return EncoderInput({name: change(array) for name, array in made.arrays.items()})


SPOILED: dict[str, tuple[Callable[[EncoderInput], Any], type[MMCoreError], str]] = {
    "raises": (lambda made: odd(), RequestError, "preprocessing failed .Odd"),
    "leaves": (lambda made: leave(), RequestError, "preprocessing failed .SystemExit"),
    "gives nothing": (lambda made: None, RequestError, "encoder failed"),
    "gives NaN": (
        lambda made: changed(made, lambda a: np.full(a.shape, np.nan)), EncoderOutputError, "not finite",
    ),
    "gives infinity": (
        lambda made: changed(made, lambda a: np.full(a.shape, np.inf)), EncoderOutputError, "not finite",
    ),
    "gives too little": (lambda made: changed(made, lambda a: a[:-4]), RequestError, "encoder failed: "),
    "gives no arrays": (lambda made: EncoderInput({}), RequestError, "encoder failed: KeyError"),
    "gives words": (
        lambda made: changed(made, lambda a: np.full(a.shape, "x")), RequestError, "encoder failed: TypeErr",
    ),
}  # fmt: skip


@pytest.mark.parametrize("budget", [8192, 5])
@pytest.mark.parametrize("name", ["pictures", "sounds"])
@pytest.mark.parametrize("case", SPOILED)
def test_faulty_preprocessing_and_what_the_encoder_makes_of_it(
    drives: Any, name: str, case: str, budget: int
) -> None:
    spoil, error, message = SPOILED[case]
    family = drives[name].family
    adapter = replace(family.adapter, inputs=FaultyInputs(family.adapter.inputs, spoil))
    with running(family, adapter, max_num_tokens=budget) as llm:
        prompts = [*prompts_of(name)[:2], marked(name)]
        fails_alone(llm, prompts, error, message)
        if case in ("gives NaN", "gives infinity"):
            misses = llm._engine._scheduler.stats().encoder_misses
            llm.generate([{**marked(name), "cache_salt": VICTIM}], PARAMS)
            assert llm._engine._scheduler.stats().encoder_misses == misses + 1, "a bad row was cached"


@dataclass(frozen=True)
class FaultyEncoder:
    inner: Any
    fault: Callable[[], Any] = field(compare=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def collate(self, inputs: Any, plans: Any) -> Any:
        if any(np.ptp(next(iter(item.arrays.values()))) > 1e6 for item in inputs):
            self.fault()
        return self.inner.collate(inputs, plans)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["pictures", "sounds"])
def test_a_faulty_encoder(drives: Any, name: str, fault: Any) -> None:
    """It fails on a batch with the victim; the others are encoded again, each alone."""
    family = drives[name].family

    def mark(made: EncoderInput) -> EncoderInput:
        def spoil(array: np.ndarray) -> np.ndarray:
            array = array.astype(np.float32)  # a copy
            array.flat[0] = 1e9
            return array

        return changed(made, spoil)

    inputs = FaultyInputs(family.adapter.inputs, mark)
    adapter = replace(family.adapter, inputs=inputs, encoder=FaultyEncoder(family.adapter.encoder, fault))
    with running(family, adapter) as llm:
        message = "own words" if fault is own else "encoder failed: (Odd|SystemExit)"
        pictures = [prompt for prompt in prompts_of(name) if "multi_modal_data" in prompt][:2]
        with pytest.raises(RequestError, match=message):
            llm.generate(marked(name), PARAMS)
        good = [llm.generate(prompt, PARAMS).token_ids for prompt in pictures]
        fresh = [{**prompt, "cache_salt": "x"} for prompt in pictures]
        outputs = llm.generate([fresh[0], marked(name), fresh[1]], PARAMS)
        assert type(outputs[1].error) is RequestError
        assert [outputs[0].token_ids, outputs[2].token_ids] == good
        check_clean(llm)


# ------------------------------------------------------------------ a decoder that overflows


def test_what_overflowed_is_not_read_by_whoever_gets_its_blocks(drives: Any) -> None:
    """Rows that are finite and absurd make NaN in the KV cache; the next owner of the blocks sees none."""
    family = drives["pictures"].family
    huge = FaultyInputs(family.adapter.inputs, lambda made: changed(made, lambda a: a * 0 + 1e30))
    cache = {"kv_cache": {"max_tokens": 96, "enable_block_reuse": False}}
    with running(family, replace(family.adapter, inputs=huge), **cache) as llm:
        good = prompts_of("pictures")[:2]
        alone = [llm.generate(prompt, PARAMS).token_ids for prompt in good]
        for _ in range(3):
            (failed,) = llm.generate([marked("pictures")], PARAMS)
            assert isinstance(failed.error, RequestError)
            assert [llm.generate(prompt, PARAMS).token_ids for prompt in good] == alone
        check_clean(llm)


# ------------------------------------------------------------------ cross states of a context stage


@dataclass(frozen=True)
class Context:
    """Hands the rows on; for a sound of one value it fails."""

    spoil: Callable[[torch.Tensor], torch.Tensor] = field(compare=False)

    def length(self, plans: Any, text_ids: Any) -> int:
        return sum(plan.rows for plan in plans)

    def work(self, length: int) -> int:
        return length

    def build(self) -> torch.nn.Module:
        return ContextModule(self.spoil)


class ContextModule(torch.nn.Module):
    def __init__(self, spoil: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self._spoil = spoil

    def forward(self, rows: torch.Tensor, text_ids: torch.Tensor) -> torch.Tensor:
        return self._spoil(rows) if MARK.matches(rows) else rows


class _Mark:
    """The victim's rows, learned when it is encoded alone for the first time."""

    rows: torch.Tensor | None = None

    def matches(self, rows: torch.Tensor) -> bool:
        return self.rows is not None and torch.allclose(rows, self.rows, atol=1e-4)


MARK = _Mark()


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (lambda rows: odd(), RequestError, "failed making cross states .Odd"),
        (lambda rows: rows[:-1], EncoderOutputError, "49 cross states for 50 planned"),
        (lambda rows: rows * float("nan"), EncoderOutputError, "cross states are not finite"),
    ],
)
def test_a_faulty_context_stage(
    drives: Any, monkeypatch: pytest.MonkeyPatch, spoil: Any, error: type[MMCoreError], message: str
) -> None:
    family = drives["sounds"].family
    monkeypatch.setattr(MARK, "rows", None)
    with running(family, replace(family.adapter, context=Context(spoil))) as llm:
        prepared = llm.preprocess(marked("sounds"), PARAMS)
        arrays = llm._pipeline.preprocess(prepared.items[0]).arrays
        with torch.inference_mode():
            tensors = {name: torch.from_numpy(array)[None] for name, array in arrays.items()}
            rows = llm._engine._runner._model.encoder(**tensors)
        monkeypatch.setattr(MARK, "rows", rows.reshape(-1, rows.shape[-1]))
        fails_alone(llm, [*prompts_of("sounds")[:2], marked("sounds")], error, message)
