"""Parity: the answers are those of the model as its authors' own code runs it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from hypothesis import strategies as st
from torch import Tensor

from mmcore.adapter import LogitsEdit
from mmcore.request import PreparedRequest, RequestOutput
from mmcore.testing.answers import Room
from mmcore.testing.law import law
from mmcore.testing.samples import Ask, asks
from mmcore.testing.subject import Subject

RELATIVE = 1e-4
"""Of the largest logit."""


def _has_reference(subject: Subject) -> bool:
    return subject.case.reference is not None


def referred(subject: Subject) -> st.SearchStrategy[Ask]:
    return asks(subject, modalities=subject.case.reference_takes)


@law(needs=("a_batch_changes_nothing",), applies=_has_reference, ask=referred)
def answers_equal_the_reference(subject: Subject, ask: Ask) -> None:
    """Greedy tokens are the reference model's, and logits lie within 1e-4 of it relative to the largest."""
    request = subject.prepared(ask)
    (output,) = subject.first_links([request], Room(max_num_tokens=48))
    answer = output.token_ids
    logits = subject.reference.logits(prompt_of(request), ask.media, answer).float()
    assert logits.shape[0] == len(answer), (
        f"the reference gives {tuple(logits.shape)} for {len(answer)} tokens"
    )
    allowed = torch.stack([edited(subject, request, logits[n], answer[:n]) for n in range(len(answer))])
    bound = RELATIVE * float(logits.abs().max())
    for place, token in enumerate(answer):
        lead = float(allowed[place].max() - allowed[place, token])
        assert lead <= bound, (
            f"token {place + 1} is {token}, the reference says {int(allowed[place].argmax())}"
        )
    _check_scores(output, allowed.log_softmax(dim=-1), bound)


def prompt_of(request: PreparedRequest) -> Sequence[int]:
    """Of a family with a context stage what that reads: the decoder's own prompt is always the same."""
    context = () if request.cross is None else request.cross.text_ids
    return context or request.token_ids


def _check_scores(output: RequestOutput, wanted: Tensor, bound: float) -> None:
    for place, scores in enumerate(output[0].logprobs or ()):
        for token, score in scores.items():
            error = abs(score.logprob - float(wanted[place, token]))
            assert error <= 2 * bound, f"token {place + 1}: the score of {token} differs by {error:.1e}"


def edited(subject: Subject, request: PreparedRequest, logits: Tensor, before: Sequence[int]) -> Tensor:
    """What the family's own rules leave of the reference's logits."""
    decoding = subject.adapter.decoding
    first = () if before else decoding.defaults.first_suppress_ids
    edits = [rule.edit(before) for rule in decoding.logits_rules(request)]
    for edit in (LogitsEdit(banned=(*decoding.defaults.suppress_ids, *first)), *edits):
        logits = apply(logits, edit)
    return logits


def apply(logits: Tensor, edit: LogitsEdit) -> Tensor:
    """An edit of one row of logits [V]."""
    logits = logits.clone()
    for token, value in edit.bias:
        logits[token] += value
    banned = torch.zeros(len(logits), dtype=torch.bool)
    if edit.allowed is not None:
        banned[:] = True
        banned[list(edit.allowed)] = False
    banned[[i for i in edit.banned if i < len(logits)]] = True
    for start, stop in edit.banned_spans:
        banned[start:stop] = True
    logits[banned] = -torch.inf
    if edit.prefer is not None:
        start, stop = edit.prefer
        others = torch.cat([logits[:start], logits[stop:]])
        if logits[start:stop].logsumexp(0) > others.max():
            logits[:start] = logits[stop:] = -torch.inf
    return logits
