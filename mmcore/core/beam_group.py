"""A request's beams: what is decided about them together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from mmcore.core.beam_search import BeamRules, BeamSearch, Candidates
from mmcore.core.output import EndedSequence, Hypothesis
from mmcore.sampling_params import SamplingParams


@dataclass(slots=True, eq=False)
class BeamGroup:
    """One live beam a sequence, best first. They move on together."""

    search: BeamSearch
    width: int
    slots: list[int] = field(default_factory=list)
    """Kept for beams that have not begun: two groups shall never wait for each other's."""
    candidates: dict[int, Candidates] = field(default_factory=dict)
    """By sequence, of those that wait for the others."""

    def outcome(self, ended: Iterable[EndedSequence]) -> list[EndedSequence]:
        """With the best hypothesis in the first sequence, and so on."""
        found = self.search.result()
        return [
            _with_hypothesis(one, found[one.sequence]) if one.sequence < len(found) else one for one in ended
        ]


def beam_group(
    params: SamplingParams, stop_ids: frozenset[int], max_tokens: int, min_tokens: int
) -> BeamGroup | None:
    """None where the request does not search with beams."""
    if not params.use_beam_search:
        return None
    rules = BeamRules(
        width=params.num_sequences,
        stop_ids=stop_ids,
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        length_penalty=1.0 if params.length_penalty is None else params.length_penalty,
        early_stopping=params.early_stopping or False,
    )
    return BeamGroup(BeamSearch(rules), rules.width)


def _with_hypothesis(ended: EndedSequence, found: Hypothesis) -> EndedSequence:
    if ended.reason in ("abort", "error"):
        return replace(ended, hypothesis=found)
    return replace(ended, hypothesis=found, reason=found.reason, stop_reason=found.stop_reason)
