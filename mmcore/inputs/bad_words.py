"""The texts that a request bans, as token ids."""

from __future__ import annotations

from mmcore.adapter import Tokenizer
from mmcore.sampling_params import SamplingParams

_ANCHOR = "\n"
"""What stands before a text that is not at the beginning: a character that joins no word."""


def bad_words(params: SamplingParams, tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """Each of ``bad`` at the beginning, inside a text and after a blank, which are other tokens, and
    ``bad_token_ids``."""
    spelled = (
        ids
        for text in (bad.lstrip() or bad for bad in params.bad)
        for ids in (
            tokenizer.encode(text, special_tokens=False),
            _inside(text, tokenizer),
            _inside(" " + text, tokenizer),
        )
    )
    return tuple(dict.fromkeys(word for word in (*spelled, *params.bad_token_ids) if word))


def _inside(text: str, tokenizer: Tokenizer) -> tuple[int, ...]:
    """As it is spelled after other text: a tokenizer of the sentencepiece kind puts a blank before the first
    word alone."""
    anchor = tokenizer.encode(_ANCHOR, special_tokens=False)
    ids = tokenizer.encode(_ANCHOR + text, special_tokens=False)
    if ids[: len(anchor)] == anchor:
        return ids[len(anchor) :]
    return tokenizer.encode(text, special_tokens=False)
