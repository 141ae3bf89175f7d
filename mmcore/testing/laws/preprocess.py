"""Preprocessing: a pure function of a medium and its plan, in any thread and process."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from mmcore.adapter import InputProcessor
from mmcore.inputs.ops import NumpyOps
from mmcore.request import DecodedMedia, EncoderInput, ItemPlan
from mmcore.testing.law import law
from mmcore.testing.laws.rows import decoded, measured, preprocessed, some_media
from mmcore.testing.samples import Medium
from mmcore.testing.subject import Subject

THREADS = 4


def _copies(inputs: list[EncoderInput]) -> list[dict[str, np.ndarray]]:
    return [{name: np.array(array) for name, array in one.arrays.items()} for one in inputs]


def _check_same(found: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray], where: str) -> None:
    assert found.keys() == wanted.keys(), f"{where}: other arrays, {sorted(found)} and {sorted(wanted)}"
    for name, array in wanted.items():
        same = found[name].dtype == array.dtype and np.array_equal(found[name], array, equal_nan=True)
        assert same, f"{where}: {name} is another"


@law(needs=("any_header_is_measured_or_refused",), items=some_media)
def preprocess_is_pure(subject: Subject, items: list[Medium]) -> None:
    """The same medium gives the same arrays, whatever came between; nothing given or made is changed."""
    plans = measured(subject, items)
    media = [decoded(item, plan) for item, plan in zip(items, plans, strict=True)]
    before = [medium.data.copy() for medium in media]
    run = subject.adapter.inputs.preprocess
    first = [run(medium, plan, NumpyOps()) for medium, plan in zip(media, plans, strict=True)]
    kept = _copies(first)
    second = [
        run(medium, plan, NumpyOps()) for medium, plan in reversed(list(zip(media, plans, strict=True)))
    ]
    for medium, data in zip(media, before, strict=True):
        assert np.array_equal(medium.data, data), "preprocess changed the medium that it was given"
    for one, again, copy in zip(first, reversed(second), kept, strict=True):
        _check_same(again.arrays, copy, "a second time")
        _check_same(one.arrays, copy, "after another item")


@law(needs=("preprocess_is_pure",), cost=2, items=some_media)
def preprocess_is_the_same_in_threads(subject: Subject, items: list[Medium]) -> None:
    """Items that are preprocessed at once, in several threads, come out as one after the other."""
    plans = measured(subject, items)
    pairs = [(decoded(item, plan), plan) for item, plan in zip(items, plans, strict=True)] * THREADS
    run = subject.adapter.inputs.preprocess
    alone = _copies([run(medium, plan, NumpyOps()) for medium, plan in pairs])
    with ThreadPoolExecutor(THREADS) as pool:
        together = list(pool.map(lambda pair: run(pair[0], pair[1], NumpyOps()), pairs))
    for found, wanted in zip(together, alone, strict=True):
        _check_same(found.arrays, wanted, "in a thread")


def preprocess_there(
    processor: InputProcessor, medium: DecodedMedia, plan: ItemPlan
) -> Mapping[str, np.ndarray]:
    """Runs in a worker."""
    return dict(processor.preprocess(medium, plan, NumpyOps()).arrays)


@law(needs=("preprocess_is_pure", "adapter_and_requests_pickle"), cost=4, items=some_media)
def preprocess_is_the_same_in_a_process(subject: Subject, items: list[Medium]) -> None:
    """A worker process, with its own hash seed, makes the same arrays."""
    plans = measured(subject, items)
    wanted = _copies(preprocessed(subject, items, plans))
    processor = subject.adapter.inputs
    for item, plan, arrays in zip(items, plans, wanted, strict=True):
        there = subject.worker.submit(preprocess_there, processor, decoded(item, plan), plan).result()
        _check_same(there, arrays, "in another process")


def _has_preprocessing(subject: Subject) -> bool:
    return subject.case.preprocessing is not None


@law(needs=("preprocess_is_pure",), applies=_has_preprocessing, items=some_media)
def preprocess_equals_the_published_processor(subject: Subject, items: list[Medium]) -> None:
    """Arrays are those of the published processor, within the bound that the author states."""
    found = preprocessed(subject, items, measured(subject, items))
    for one, wanted in zip(found, subject.preprocessing(items), strict=True):
        for name, array in wanted.items():
            assert one.arrays[name].shape == array.shape, (
                f"{name}: {one.arrays[name].shape}, not {array.shape}"
            )
            error = float(np.abs(one.arrays[name].astype(np.float64) - array).max(initial=0.0))
            bound = subject.case.preprocessing_bound
            assert error <= bound, f"{name} differs by {error:.2g}, the stated bound is {bound:.2g}"
