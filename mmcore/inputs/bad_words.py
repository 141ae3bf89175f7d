"""The texts that a request bans, as token ids."""

from __future__ import annotations

from mmcore.adapter import Tokenizer
from mmcore.sampling_params import SamplingParams


def bad_words(params: SamplingParams, tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """Each of ``bad`` as it stands and after a blank, which are other tokens, and ``bad_token_ids``."""
    spelled = (
        tokenizer.encode(start + text.lstrip(), special_tokens=False)
        for text in params.bad
        for start in ("", " ")
    )
    return tuple(dict.fromkeys(word for word in (*spelled, *params.bad_token_ids) if word))
