"""Random paged batches, the bound that half-precision results must keep, and Triton's interpreter."""

from __future__ import annotations

import os
import pickle
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor


@dataclass(frozen=True)
class PagedBatch:
    """Arguments of ``paged_attention``; block tables in random order, what nobody may read poisoned."""

    query: Tensor
    key_cache: Tensor
    value_cache: Tensor
    block_tables: Tensor
    query_starts: Tensor
    context_lens: Tensor
    max_query_len: int

    def arrays(self) -> tuple[Tensor, ...]:
        caches = self.key_cache, self.value_cache
        return self.query, *caches, self.block_tables, self.query_starts, self.context_lens

    def call(self, function: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
        """``function`` is the launcher or the reference; arguments from the scale on."""
        return function(*self.arrays(), *args, **kwargs)

    def cast(self, dtype: torch.dtype) -> PagedBatch:
        query, keys, values = (x.to(dtype) for x in (self.query, self.key_cache, self.value_cache))
        return PagedBatch(
            query, keys, values, self.block_tables, self.query_starts, self.context_lens, self.max_query_len
        )


def make_batch(
    rows: list[tuple[int, int]],
    heads: tuple[int, int],
    size: int,
    block_size: int,
    *,
    seed: int,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    adjoin: bool = False,
) -> PagedBatch:
    """``rows`` holds (tokens of this step, context) of each row; ``heads`` query and KV heads.

    Blocks lie in random order, or one after the other with ``adjoin``.
    """
    random = torch.Generator(device).manual_seed(seed)
    counts = [-(-context // block_size) for _, context in rows]
    order = torch.randperm(sum(counts), generator=random, device=device, dtype=torch.int32) + 1
    order = order.sort().values if adjoin else order
    tables = torch.zeros((len(rows), max(max(counts), 1)), dtype=torch.int32, device=device)
    caches = torch.randn(
        (2, sum(counts) + 1, block_size, heads[1], size), generator=random, device=device, dtype=dtype
    )
    caches[:, 0] = torch.nan  # what nobody may read
    begin = 0
    for row, (count, (_, context)) in enumerate(zip(counts, rows, strict=True)):
        tables[row, :count] = order[begin : begin + count]
        if context % block_size:
            caches[:, tables[row, count - 1].long(), context % block_size :] = torch.nan
        begin += count
    lens = torch.tensor([[count for count, _ in rows], [context for _, context in rows]], dtype=torch.int32)
    starts = torch.nn.functional.pad(lens[0].cumsum(0, dtype=torch.int32), (1, 0))
    query = torch.randn((int(starts[-1]), heads[0], size), generator=random, device=device, dtype=dtype)
    return PagedBatch(
        query, caches[0], caches[1], tables, starts.to(device), lens[1].to(device), max(c for c, _ in rows)
    )


def assert_within_twice(result: Tensor, plain: Tensor, truth: Tensor) -> None:
    """``result`` is at most twice as far from the float32 ``truth`` as ``plain`` torch in the same dtype."""
    assert result.dtype == plain.dtype
    assert torch.isfinite(result).all()
    error, bound = (result.float() - truth).abs(), (plain.float() - truth).abs()
    slack = 1e-5 * float(truth.abs().max())  # plain torch can be exact by luck
    assert float(error.max()) <= 2 * float(bound.max()) + slack
    assert float(error.norm()) <= 2 * float(bound.norm()) + slack


@pytest.fixture(name="make_batch", scope="session")
def _make_batch() -> Callable[..., PagedBatch]:
    return make_batch


@pytest.fixture(name="assert_within_twice", scope="session")
def _assert_within_twice() -> Callable[[Tensor, Tensor, Tensor], None]:
    return assert_within_twice


@pytest.fixture
def fresh_seed() -> int:
    """A seed that no earlier run had, set as torch's too; pytest shows it when the test fails."""
    seed = secrets.randbits(31)
    print(f"seed {seed}")
    torch.manual_seed(seed)
    return seed


class Interpreter:
    """Calls a function in a process where Triton kernels run in the interpreter, on the CPU."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", str(Path(__file__).with_name("interpreter_worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "TRITON_INTERPRET": "1",
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
        )

    def call(self, module: str, function: str, *args: Any, **kwargs: Any) -> tuple[Any, tuple[Any, ...]]:
        """The result, and the arguments as the call left them."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump((module, function, args, kwargs), self._process.stdin)
        self._process.stdin.flush()
        answer = pickle.load(self._process.stdout)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(timeout=60)


@pytest.fixture(scope="session")
def interpreter() -> Iterator[Interpreter]:
    worker = Interpreter()
    yield worker
    worker.close()
