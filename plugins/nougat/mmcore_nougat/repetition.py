"""When a page's answer has begun to repeat itself: its logits stop moving (arXiv 2308.13418, section 4.4).

After ``StoppingCriteriaScores`` and ``NougatModel.inference`` of facebookresearch/nougat, for a page by
itself: there a batch ends when all its pages repeat.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

SPAN, WINDOW = 15, 200
"""Logits of one spread; spreads that are looked at together."""
STILL, STILL_AFTERWARDS = 0.015, 0.045
"""Variance of the spreads below which nothing moves: while the answer grows, and when it is complete."""
CONTEXT = 4095
FEWEST = 10
"""Spreads that tell something."""


class RepetitionStop:
    """Implements `mmcore.adapter.StopRule`: the second token in a row ends it at which little moves.

    A spread is the variance of the last 15 logits over their number; little moves where the variance of the
    last 200 spreads is small.
    """

    def __init__(self) -> None:
        self._logits: deque[float] = deque(maxlen=SPAN)
        self._spreads = np.full(WINDOW, np.nan)
        self._count = 0
        self._limit = 0
        """Set where nothing moved at the last token."""

    def observe(self, token_id: int, logit: float, logprob: float) -> bool:
        self._logits.append(logit)
        self._spreads[self._count % WINDOW] = _variance(np.array(self._logits)) / len(self._logits)
        self._count += 1
        if not (self._count > WINDOW and _variance(self._spreads) < STILL):
            self._limit = 0
            return False
        if self._limit:
            return self._limit >= self._count
        self._limit = int(min(self._count * 1.15 + 150 + WINDOW, CONTEXT))
        return False


def _variance(values: np.ndarray) -> float:
    """Of a sample; of a single value there is none."""
    if len(values) < 2:
        return float("nan")
    away = values - values.mean()
    return float(away @ away) / (len(values) - 1)


def repetition_start(logits: Sequence[float]) -> int | None:
    """How many tokens, the start token among them, come before the repetition of an answer without an end.

    0: the page is nothing that the model knows. None: there is no repetition.
    """
    count = len(logits)
    spreads = np.array([np.var(logits[n : n + SPAN]) / SPAN for n in range(count - SPAN)])
    if len(spreads) < FEWEST:
        return None
    still = np.flatnonzero(_variances_of_ends(spreads) < STILL_AFTERWARDS)
    if len(still) < 2 or np.any(np.diff(still) > 1):
        return None
    start = int(min(max(int(still[0]), 1) * 1.08 + 120, CONTEXT))
    if start / count > 0.9:  # at most its last bit
        return None
    return 0 if still[0] < 30 else start


def _variances_of_ends(spreads: np.ndarray) -> np.ndarray:
    """Of ``spreads[1:]``, ``spreads[2:]`` and so on, as long as ten are left."""
    backwards = spreads[::-1] - spreads.mean()
    counts = np.arange(1, len(spreads) + 1)
    means = np.cumsum(backwards) / counts
    variances = np.cumsum(backwards**2) / counts - means**2
    found: np.ndarray = variances[FEWEST - 1 : len(spreads) - 1][::-1]
    return found
