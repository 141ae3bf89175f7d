"""Banned texts, as token ids."""

from __future__ import annotations

import pytest
from inputs.test_streaming import TOKENIZERS, kinds
from inputs.toy_family import byte_level_json, metaspace_json

from mmcore.inputs.bad_words import bad_words
from mmcore.inputs.tokenizer import HFTokenizer
from mmcore.sampling_params import SamplingParams

ALL = {
    **TOKENIZERS,
    "metaspace, first": HFTokenizer(metaspace_json("first")),
    "metaspace, always": HFTokenizer(metaspace_json("always")),
}


def holds(ids: tuple[int, ...], words: tuple[tuple[int, ...], ...]) -> bool:
    return any(ids[i : i + len(word)] == word for word in words for i in range(len(ids)))


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("bad", ["no", " no", "no way", "the"])
@pytest.mark.parametrize("before", ["", "I say\n", "I say ", "I:"])
def test_a_text_is_banned_wherever_it_stands(kind: str, bad: str, before: str) -> None:
    """At the beginning, on a new line, after a blank, after a colon."""
    tokenizer = ALL[kind]
    words = bad_words(SamplingParams(bad=bad), tokenizer)
    ids = tokenizer.encode(before + bad.strip(), special_tokens=False)
    assert holds(ids, words)
    assert not holds(tokenizer.encode(before + "we", special_tokens=False), words)


@kinds
def test_each_spelling_reads_as_the_text(kind: str) -> None:
    words = bad_words(SamplingParams(bad="no"), TOKENIZERS[kind])
    assert {TOKENIZERS[kind].decode(word).strip() for word in words} == {"no"}


def test_ids_are_banned_as_they_are() -> None:
    tokenizer = HFTokenizer(byte_level_json())
    assert bad_words(SamplingParams(bad_token_ids=(5, (6, 7))), tokenizer) == ((5,), (6, 7))


def test_a_blank_alone_is_banned_as_it_stands() -> None:
    tokenizer = HFTokenizer(byte_level_json())
    assert tokenizer.encode(" ", special_tokens=False) in bad_words(SamplingParams(bad=" "), tokenizer)
