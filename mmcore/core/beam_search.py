"""Which sequences a beam search keeps: a policy over ids and logprobs that knows no blocks and no slots.

Equal to transformers 5's ``generate(num_beams=...)``, whose rules these are. Of all continuations of the live
beams the best (1 + number of stop ids) x width are looked at. Those among the best ``width`` that end are
finished, with the score sum of logprobs / length ** length_penalty; the best that do not end live on. The
search is over when

    early_stopping True      ``width`` sequences are finished
    early_stopping False     no live beam, were it to end now, beats the worst finished one
    early_stopping "never"   no live beam could, at the length that favours it most

or the length limit is reached, where every continuation ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mmcore.core.output import Hypothesis
from mmcore.sampling_params import candidates_per_beam

Candidates = Sequence[tuple[int, float]]
"""The likeliest next tokens of one beam, (id, logprob), best first."""


@dataclass(frozen=True, slots=True)
class Beam:
    """A sequence that is still growing."""

    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    total: float = 0.0


@dataclass(frozen=True, slots=True)
class Move:
    """A live beam becomes beam ``parent`` with one more token."""

    parent: int
    token_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamRules:
    """What a request asked for."""

    width: int
    stop_ids: frozenset[int]
    max_tokens: int
    min_tokens: int = 0
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False


class BeamSearch:
    """The beams of one request, best first."""

    def __init__(self, rules: BeamRules) -> None:
        self._rules = rules
        self.beams = [Beam()]
        self._finished: list[Hypothesis] = []

    def advance(self, candidates: Sequence[Candidates]) -> list[Move]:
        """One more token for each beam, from the candidates of each. No moves: the search is over."""
        rules, length = self._rules, len(self.beams[0].token_ids) + 1
        kept = candidates_per_beam(rules.width, len(rules.stop_ids))
        found = [
            (beam.total + logprob, -parent, -place, token)
            for parent, beam in enumerate(self.beams)
            for place, (token, logprob) in enumerate(candidates[parent])
        ]
        found.sort(reverse=True)
        grown = [(-parent, token, candidates[-parent][-place][1]) for _, parent, place, token in found[:kept]]
        is_last = length >= rules.max_tokens
        takes_more = rules.early_stopping is not True or len(self._finished) < rules.width
        moves: list[tuple[Move, Beam]] = []
        for rank, (parent, token, logprob) in enumerate(grown):
            if is_last or self._stops(token, length):
                if rank < rules.width and takes_more:
                    self._finish(self._grow(parent, token, logprob), token)
            elif len(moves) < rules.width:
                moves.append((Move(parent, token), self._grow(parent, token, logprob)))
        if moves:
            self.beams = [beam for _, beam in moves]
        return [] if is_last or not moves or self._is_over(length) else [move for move, _ in moves]

    def result(self) -> list[Hypothesis]:
        """At most ``width``, best first: what is finished, and of a search cut short what is live too."""
        if len(self._finished) == self._rules.width:
            return self._finished
        live = [self._hypothesis(beam) for beam in self.beams if beam.token_ids]
        return [*self._finished, *live][: self._rules.width]

    def _grow(self, parent: int, token: int, logprob: float) -> Beam:
        beam = self.beams[parent]
        return Beam((*beam.token_ids, token), (*beam.logprobs, logprob), beam.total + logprob)

    def _stops(self, token: int, length: int) -> bool:
        return token in self._rules.stop_ids and length >= self._rules.min_tokens

    def _finish(self, beam: Beam, token: int) -> None:
        """Keep it if it is among the best."""
        stopped = self._stops(token, len(beam.token_ids))
        self._finished.append(self._hypothesis(beam, token if stopped else None))
        self._finished.sort(key=lambda one: -one.score)
        del self._finished[self._rules.width :]

    def _hypothesis(self, beam: Beam, stop: int | None = None) -> Hypothesis:
        score = beam.total / len(beam.token_ids) ** self._rules.length_penalty
        return Hypothesis(beam.token_ids, beam.logprobs, score, "length" if stop is None else "stop", stop)

    def _is_over(self, length: int) -> bool:
        """No live beam is expected to beat the worst finished one."""
        rules = self._rules
        if len(self._finished) < rules.width:
            return False
        if rules.early_stopping is True:
            return True
        favours_long = rules.early_stopping == "never" and rules.length_penalty > 0.0
        best = self.beams[0].total / (rules.max_tokens if favours_long else length) ** rules.length_penalty
        return bool(best <= self._finished[-1].score)
