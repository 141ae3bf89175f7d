"""The two copies of a step give back what went in, in every dtype and shape."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from mmcore.runner.transfer import ALIGNMENT, ColumnLayout, HostCopy, send

dtypes = st.sampled_from([np.int64, np.int32, np.float32, np.bool_])
shapes = st.lists(st.integers(0, 5), min_size=1, max_size=2).map(tuple)
columns = st.lists(st.tuples(dtypes, shapes), min_size=1, max_size=6)


def filled(kinds: list[tuple[type, tuple[int, ...]]]) -> dict[str, np.ndarray]:
    random = np.random.default_rng(len(kinds))
    return {f"c{n}": random.integers(0, 9, shape).astype(dtype) for n, (dtype, shape) in enumerate(kinds)}


@given(columns)
def test_columns_lie_apart_and_keep_their_values(kinds: list[tuple[type, tuple[int, ...]]]) -> None:
    given_columns = filled(kinds)
    layout = ColumnLayout(given_columns)
    buffer = np.full(layout.num_bytes, 255, np.uint8)
    for name, array in layout.arrays(buffer).items():
        assert layout.start_of(name) % ALIGNMENT == 0
        array[...] = given_columns[name]
    for name, tensor in layout.read(torch.from_numpy(buffer)).items():
        assert np.array_equal(tensor.numpy(), given_columns[name])
        assert tensor.numpy().dtype == given_columns[name].dtype


@given(columns)
def test_what_is_sent_comes_back(kinds: list[tuple[type, tuple[int, ...]]]) -> None:
    given_columns = filled(kinds)
    back = HostCopy(send(given_columns, torch.device("cpu"))).wait()
    assert back.keys() == given_columns.keys()
    for name, column in given_columns.items():
        assert back[name].dtype == column.dtype
        assert np.array_equal(back[name], column)


def test_a_copy_is_of_its_moment() -> None:
    tensor = torch.tensor([1, 2])
    copy = HostCopy({"x": tensor})
    tensor.zero_()
    assert copy.wait()["x"].tolist() == [1, 2]


def test_one_value_of_a_column_is_copied_too() -> None:
    column = torch.arange(12).view(4, 3)[:1, 1]
    assert HostCopy({"x": column}).wait()["x"].tolist() == [1]
