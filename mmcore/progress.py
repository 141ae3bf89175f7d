"""The progress bar of `LLM.generate`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from mmcore.request import RequestOutput
from mmcore.request_handle import RequestHandle
from mmcore.sampling_params import SamplingParams

REFRESH = 0.2
"""Seconds between two looks at what was generated."""
FORMAT = "{percentage:3.0f}%|{bar}| {desc} [{elapsed}<{remaining}]"


def most_tokens(params: Sequence[SamplingParams | None], default: int) -> int:
    """The longest answer that the prompts allow; ``default`` where one names no limit."""
    return max(((given and given.max_tokens) or default for given in params), default=default)


class ProgressBar:
    """Moves with each token: a request that runs counts by its tokens, one that ended as a whole."""

    def __init__(
        self, bar: Any | None, handles: Sequence[RequestHandle], generated: Callable[[], int], expected: int
    ) -> None:
        """``generated`` counts the engine's tokens; ``expected`` are those of a request, at most."""
        self._bar = bar
        self._handles = handles
        self._generated = generated
        self._expected = expected
        self._before = generated()

    def wait(self, handle: RequestHandle) -> RequestOutput:
        """The handle's final output, with the bar moving meanwhile."""
        while (output := handle.wait(None if self._bar is None else REFRESH)) is None:
            self._show(self._bar)
        if self._bar is not None:
            self._show(self._bar)
        return output

    def _show(self, bar: Any) -> None:
        ended = [output for handle in self._handles if handle.done and (output := handle.wait(0))]
        tokens = sum(len(sequence.token_ids) for output in ended for sequence in output.outputs)
        running = max(self._generated() - self._before - tokens, 0)
        left = len(self._handles) - len(ended)
        bar.n = max(bar.n, len(ended) + min(running / self._expected, 0.99 * left))
        rate = (tokens + running) / max(bar.format_dict["elapsed"], 1e-9)
        bar.set_description_str(
            f"{len(ended)}/{len(self._handles)} requests, {tokens + running} tokens, {rate:.1f}/s"
        )


@contextmanager
def progress_bar(
    handles: Sequence[RequestHandle], generated: Callable[[], int], *, expected: int, shown: bool
) -> Iterator[ProgressBar]:
    """A bar on standard error, where that is a terminal."""
    if not shown or not sys.stderr.isatty():
        yield ProgressBar(None, handles, generated, expected)
        return
    from tqdm import tqdm

    with tqdm(total=len(handles), bar_format=FORMAT, dynamic_ncols=True) as bar:
        yield ProgressBar(bar, handles, generated, expected)
