"""Text that a user typed never becomes a special token; all other text tokenises as the checkpoint says."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs.toy_family import SPECIALS, byte_level_json, metaspace_json, unigram_json
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from mmcore.errors import CheckpointError, PromptError
from mmcore.inputs.tokenizer import HFTokenizer, IncrementalDecoder
from mmcore.request import TextSegment

SOURCES = {
    "byte level": byte_level_json(),
    "metaspace, first": metaspace_json("first"),
    "metaspace, always": metaspace_json("always"),
    "unigram": unigram_json(),
}
TEXT = st.text(st.characters(codec="utf-8"), max_size=24)
PIECES = st.lists(
    st.one_of(TEXT, st.sampled_from([*SPECIALS, "<s>", "</s>", "<image>", "<unk>", " ", "\n\n", "USER:"])),
    max_size=6,
).map("".join)


@pytest.mark.parametrize("kind", SOURCES)
@given(texts=st.lists(st.tuples(TEXT, st.booleans()), max_size=5))
def test_plain_text_equals_the_whole_string(kind: str, texts: list[tuple[str, bool]]) -> None:
    """However it is cut into trusted and untrusted parts."""
    own, reference = HFTokenizer(SOURCES[kind]), Tokenizer.from_str(SOURCES[kind])
    whole = "".join(text for text, _ in texts)
    expected = reference.encode(whole, add_special_tokens=False).ids
    assert list(own.encode_segments([TextSegment(t, trusted=k) for t, k in texts])) == expected


@pytest.mark.parametrize("kind", SOURCES)
@given(trusted=PIECES)
def test_trusted_text_equals_the_whole_string(kind: str, trusted: str) -> None:
    reference = Tokenizer.from_str(SOURCES[kind])
    expected = reference.encode(trusted, add_special_tokens=False).ids
    assert list(HFTokenizer(SOURCES[kind]).encode(trusted, special_tokens=True)) == expected


@pytest.mark.parametrize("kind", SOURCES)
def test_remembered_texts_keep_their_ids(kind: str) -> None:
    """The same text trusted, typed, and again after more others than are remembered."""
    own, reference = HFTokenizer(SOURCES[kind]), Tokenizer.from_str(SOURCES[kind])
    text = f"{SPECIALS[0]} a b"
    expected = tuple(reference.encode(text, add_special_tokens=False).ids)
    typed = own.encode(text, special_tokens=False)
    assert own.encode(text, special_tokens=True) == expected
    for number in range(200):
        other = f"{number} b"
        ids = tuple(reference.encode(other, add_special_tokens=False).ids)
        assert own.encode(other, special_tokens=True) == ids
    assert own.encode(text, special_tokens=True) == expected
    assert own.encode(text, special_tokens=False) == typed


@pytest.mark.parametrize("kind", SOURCES)
@given(before=PIECES, typed=PIECES, after=PIECES)
def test_typed_special_tokens_are_plain_text(kind: str, before: str, typed: str, after: str) -> None:
    tokenizer, plain = HFTokenizer(SOURCES[kind]), json.loads(SOURCES[kind])
    special = {t["id"] for t in plain["added_tokens"] if t["content"] != "<unk>"}
    segments = [TextSegment(before, trusted=True), TextSegment(typed), TextSegment(after, trusted=True)]
    ids = tokenizer.encode_segments(segments)
    trusted = [
        i for text in (before, after) for i in tokenizer.encode(text, special_tokens=True) if i in special
    ]
    assert [i for i in ids if i in special] == trusted


@given(typed=PIECES)
def test_the_guarded_encoding_loses_no_character(typed: str) -> None:
    tokenizer = HFTokenizer(byte_level_json())
    ids = tokenizer.encode(typed, special_tokens=False)
    decoded = tokenizer.decode(ids, skip_special_tokens=False)
    assert decoded == Tokenizer.from_str(byte_level_json()).normalizer.normalize_str(typed)


@pytest.mark.parametrize("kind", SOURCES)
@given(text=TEXT)
def test_the_guarded_tokenizer_equals_the_open_one_over_plain_text(kind: str, text: str) -> None:
    """Reached by typing a special token elsewhere: the rest of the text does not change for it."""
    tokenizer = HFTokenizer(SOURCES[kind])
    assert tokenizer._encode_guarded([TextSegment(text)]) == tokenizer.encode(text, special_tokens=False)


def test_a_typed_token_beside_a_real_one() -> None:
    tokenizer = HFTokenizer(byte_level_json())
    end = tokenizer.token_id("<|im_end|>")
    ids = tokenizer.encode_segments([TextSegment("a<|im_end|>"), TextSegment("<|im_end|>", trusted=True)])
    assert ids.count(end) == 1
    assert ids[-1] == end
    assert tokenizer.decode(ids, skip_special_tokens=False) == "a<|im_end|><|im_end|>"


def test_a_token_that_only_forms_across_the_border_is_plain() -> None:
    tokenizer = HFTokenizer(byte_level_json())
    ids = tokenizer.encode_segments([TextSegment("<|im_", trusted=True), TextSegment("end|>")])
    assert tokenizer.token_id("<|im_end|>") not in ids


def test_ids_beyond_unicode_are_an_error_of_the_prompt() -> None:
    with pytest.raises(PromptError, match="surrogate"):
        HFTokenizer(byte_level_json()).encode("\ud800", special_tokens=False)


def test_padding_truncation_and_post_processor_of_the_file_are_left_out() -> None:
    rust = Tokenizer.from_str(byte_level_json())
    rust.enable_truncation(3)
    rust.enable_padding(length=16)
    ids = HFTokenizer(rust.to_str()).encode("What does the picture say?", special_tokens=False)
    assert ids == HFTokenizer(byte_level_json()).encode("What does the picture say?", special_tokens=False)


def test_blanks_that_are_ordinary_vocabulary_stay_active() -> None:
    rust = Tokenizer.from_str(byte_level_json())
    rust.add_tokens(["    "])
    tokenizer = HFTokenizer(rust.to_str())
    assert tokenizer.token_id("    ") in tokenizer.encode("a    b", special_tokens=False)


def test_ignored_merges_do_not_let_a_special_token_through() -> None:
    """A model that looks whole words up would find a special token that is in its vocabulary."""
    vocab = {"<s>": 0, **{chr(c): c for c in range(33, 127)}}
    rust = Tokenizer(models.BPE(vocab, [], ignore_merges=True))
    rust.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    rust.add_special_tokens(["<s>"])
    tokenizer = HFTokenizer(rust.to_str())
    assert 0 not in tokenizer.encode("<s>", special_tokens=False)
    assert tokenizer.encode("<s>", special_tokens=True) == (0,)


def test_a_special_token_that_the_normaliser_would_make_is_plain() -> None:
    """＜s＞ in full width becomes <s>, and this tokenizer looks for its tokens after that."""
    vocab = {chr(c): c for c in range(33, 127)}
    rust = Tokenizer(models.BPE(vocab, []))
    rust.normalizer = normalizers.NFKC()
    rust.add_special_tokens([AddedToken("<s>", normalized=True)])
    tokenizer = HFTokenizer(rust.to_str())
    assert tokenizer.token_id("<s>") in rust.encode("＜s＞", add_special_tokens=False).ids
    ids = tokenizer.encode_segments([TextSegment("＜s＞"), TextSegment("<s>", trusted=True)])
    assert ids.count(tokenizer.token_id("<s>")) == 1


@pytest.mark.parametrize("source", ["", "{}", "[]", '{"model": 3}'])
def test_a_broken_file_is_an_error_of_the_checkpoint(source: str) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        HFTokenizer(source)


@pytest.mark.parametrize("kind", ["byte level", "metaspace, first", "metaspace, always"])
@given(text=TEXT, cuts=st.lists(st.integers(1, 3), min_size=80, max_size=80))
def test_streamed_text_is_the_whole_text(kind: str, text: str, cuts: list[int]) -> None:
    tokenizer = HFTokenizer(SOURCES[kind])
    ids = tokenizer.encode(text * 4, special_tokens=False)
    decoder, pieces, start = IncrementalDecoder(tokenizer), [], 0
    for cut in cuts:
        pieces.append(decoder.push(ids[start : start + cut]))
        start += cut
    pieces += [decoder.push(ids[start:]), decoder.flush()]
    assert "".join(pieces) == tokenizer.decode(ids)


@given(values=st.lists(st.integers(0, 255), max_size=60))
def test_streamed_bytes_that_are_no_text_come_out_all_the_same(values: list[int]) -> None:
    tokenizer = HFTokenizer(byte_level_json())
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    ids = [tokenizer.token_id(letters[v]) or 0 for v in values]
    decoder = IncrementalDecoder(tokenizer)
    assert "".join([*(decoder.push([i]) for i in ids), decoder.flush()]) == tokenizer.decode(ids)


def test_streaming_never_splits_a_character() -> None:
    tokenizer = HFTokenizer(byte_level_json())
    decoder = IncrementalDecoder(tokenizer)
    pieces = [decoder.push([i]) for i in tokenizer.encode("né 你好 🙂!", special_tokens=False)]
    assert "\ufffd" not in "".join(pieces)
    assert "".join(pieces) == "né 你好 🙂!"
