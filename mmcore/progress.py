"""The progress bar of `LLM.generate`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mmcore.request import RequestOutput


class ProgressBar:
    """Counts finished requests and generated tokens; draws nothing without a bar."""

    def __init__(self, bar: Any | None) -> None:
        self._bar = bar
        self._tokens = 0

    def after(self, output: RequestOutput | None) -> RequestOutput:
        """Count a finished request; gives it back."""
        assert output is not None, "waited without a time limit"
        if self._bar is not None:
            self._tokens += sum(len(sequence.token_ids) for sequence in output.outputs)
            elapsed = max(self._bar.format_dict["elapsed"], 1e-9)
            self._bar.set_postfix_str(f"{self._tokens / elapsed:.1f} tokens/s", refresh=False)
            self._bar.update()
        return output


@contextmanager
def progress_bar(total: int, *, shown: bool) -> Iterator[ProgressBar]:
    """A bar on standard error, where that is a terminal."""
    if not shown or not sys.stderr.isatty():
        yield ProgressBar(None)
        return
    from tqdm import tqdm

    with tqdm(total=total, desc="Processed requests", unit="request", dynamic_ncols=True) as bar:
        yield ProgressBar(bar)
