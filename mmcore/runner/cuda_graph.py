"""Decode steps as CUDA graphs: one for each of a ladder of row counts, captured at start or at first use.

A capture takes about a tenth of a second, in which nobody gets a token. So the sizes that serve most counts
come first at start, and while requests run a step takes the next larger graph that is there.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from functools import partial

from mmcore.errors import KernelError
from mmcore.runner.batch import StepInputs, TableShape
from mmcore.runner.decode_step import DecodeColumns, DecodeStep, LastTokens, Selected
from mmcore.runner.graph_recorder import GraphRecorder

logger = logging.getLogger(__name__)

LADDER = (1, 2, 4, *range(8, 64, 8), *range(64, 257, 16))
SPLIT_ROWS = 32
"""Up to so many rows, attention cuts long contexts, and a graph is made for a power of two of blocks."""
FEWEST_BLOCKS = 32
CROSS_WIDTHS = 32
"""Cross block tables are as wide as a multiple of this, so that lengths that differ little share graphs."""
WARM_UP_SECONDS = 8.0
"""Of a start at most so many go into captures; the other sizes are captured when they are needed."""
MOST_ROWS, MOST_WIDTH = 2, 4
"""How many times larger than needed a graph may be that is there already."""


class DecodeGraph:
    """One step of a fixed number of rows. Without a CUDA device a replay runs the step as it stands."""

    def __init__(self, step: DecodeStep, columns: DecodeColumns, recorder: GraphRecorder | None) -> None:
        self._columns = columns
        columns.fill(None)
        work = partial(step, columns.on_device)
        self._replay = work if recorder is None else recorder.record(work)

    def run(self, inputs: StepInputs) -> Selected:
        """Queue the step. What it gives is overwritten when this graph runs again."""
        self._columns.fill(inputs)
        return self._replay().rows(len(inputs.context_lens))


class DecodeGraphs:
    """Runs steps of one token a row, padded to the next size of the ladder.

    Where a capture fails, it and all later steps run eagerly: `failure` says why.
    """

    def __init__(self, step: DecodeStep, shape: TableShape, last: LastTokens) -> None:
        self._step = step
        self._shape = shape
        self._last = last
        self._sizes = [size for size in LADDER if size < shape.slots] + [min(shape.slots, LADDER[-1])]
        self._recorder = GraphRecorder(last.device) if last.device.type == "cuda" else None
        self._graphs: dict[tuple[int, int, int], DecodeGraph] = {}
        self.failure: str | None = None

    def run(self, inputs: StepInputs) -> Selected | None:
        """None: the step is not of that kind, or cannot be captured; run it eagerly."""
        rows = len(inputs.context_lens)
        if self.failure or rows > self._sizes[-1] or not _is_decode(inputs):
            return None
        size, blocks = self._sizes[bisect_left(self._sizes, rows)], inputs.block_tables.shape[1]
        cross = inputs.cross_block_tables
        cross_width = 0 if cross is None else -(-cross.shape[1] // CROSS_WIDTHS) * CROSS_WIDTHS
        key = size, self._width(size, blocks), cross_width
        graph = self._graphs.get(key) or self._larger(rows, blocks, cross_width) or self._capture(key)
        return None if graph is None else graph.run(inputs)

    def _larger(self, rows: int, blocks: int, cross_width: int) -> DecodeGraph | None:
        """The smallest of those captured that can do it without much in vain."""
        fitting = (
            key
            for key in self._graphs
            if rows <= key[0] <= MOST_ROWS * rows
            and self._width(key[0], blocks) <= key[1] <= MOST_WIDTH * self._width(key[0], blocks)
            and key[2] == cross_width
        )
        best = min(fitting, default=None)
        return None if best is None else self._graphs[best]

    def warm_up(self, cross_width: int, seconds: float = WARM_UP_SECONDS) -> None:
        """Capture all sizes, powers of two first, until the time is used up."""
        until = time.monotonic() + seconds
        for size in sorted(self._sizes, key=lambda size: (size & (size - 1) != 0, size)):
            if self.failure or time.monotonic() > until:
                return
            self._capture((size, self._width(size, 1), cross_width))

    def _width(self, rows: int, blocks: int) -> int:
        """Blocks of the longest row that a graph is made for. Many rows fill the card whatever their length;
        few are cut into stretches, as many as the longest could need, so that shorter ones pay for it."""
        if rows > SPLIT_ROWS:
            return self._shape.max_blocks
        return min(max(FEWEST_BLOCKS, 1 << (blocks - 1).bit_length()), self._shape.max_blocks)

    def _capture(self, key: tuple[int, int, int]) -> DecodeGraph | None:
        """``key``: rows, blocks of the longest one, cross blocks."""
        try:
            columns = DecodeColumns(*key, self._shape, self._last)
            self._graphs[key] = DecodeGraph(self._step, columns, self._recorder)
        except KernelError:  # an eager step would need it too
            raise
        except Exception as error:  # whatever stops a capture, an eager step can do the same work
            self.failure = f"{type(error).__name__}: {error}"
            logger.warning(
                "decode runs without CUDA graphs, %d rows cannot be captured: %s", key[0], self.failure
            )
            return None
        return self._graphs[key]


def _is_decode(inputs: StepInputs) -> bool:
    """One token in each row, each is sampled after, none of them is an encoder row."""
    return (
        len(inputs.sample_rows) == len(inputs.token_ids) and not inputs.merges and inputs.max_query_len == 1
    )
