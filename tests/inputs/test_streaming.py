"""Streamed text: no piece is taken back, no character comes in halves, no half of a stop string is shown."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs.toy_family import byte_level_json
from tokenizers import Tokenizer, decoders, models, normalizers

from mmcore.inputs.decoding import PlainDecoding
from mmcore.inputs.tokenizer import HFTokenizer, IncrementalDecoder
from mmcore.output_processor import OutputProcessor
from mmcore.request import PreparedRequest, RequestTimings
from mmcore.sampling_params import SamplingParams

LOST = "\ufffd"
WHOLE = (
    "é",
    "e\u0301",
    "你们",
    "好",
    "ก็",
    "👍🏽",
    "👩‍👩‍👧‍👦",
    "🇩🇪🇫🇷",
    "🏳️‍🌈",
    "1️⃣",
    "नि",
    "a",
    "the ",
    " ",
    "\n",
    "x.",
)
TEXTS = st.lists(
    st.one_of(st.sampled_from(WHOLE), st.characters(codec="utf-8", exclude_characters=LOST)), max_size=16
).map("".join)


@cache
def byte_fallback_json() -> str:
    """Of the sentencepiece kind: what the vocabulary lacks is spelled in bytes, a token each."""
    names = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *map(chr, range(33, 127)), "é", "好"]
    vocabulary = {name: number for number, name in enumerate(names)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return str(tokenizer.to_str())


TOKENIZERS = {
    "byte level": HFTokenizer(byte_level_json()),
    "byte fallback": HFTokenizer(byte_fallback_json()),
}
kinds = pytest.mark.parametrize("kind", TOKENIZERS)


def pieces(tokenizer: HFTokenizer, ids: tuple[int, ...]) -> list[str]:
    decoder = IncrementalDecoder(tokenizer)
    return [*(decoder.push([one]) for one in ids), decoder.flush()]


@kinds
@given(text=TEXTS)
def test_pieces_joined_are_the_whole(kind: str, text: str) -> None:
    """Cut at every token border. Each piece is what it stays: a replacement character is in none."""
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode(text, special_tokens=False)
    found = pieces(tokenizer, ids)
    assert "".join(found) == tokenizer.decode(ids)
    assert not any(LOST in piece for piece in found)


@kinds
@given(text=TEXTS, cut=st.integers(0, 200), then=TEXTS)
def test_a_character_that_is_never_finished(kind: str, text: str, cut: int, then: str) -> None:
    """Something is shown for it at last, and what was shown of the text before it stays."""
    tokenizer = TOKENIZERS[kind]
    head = tokenizer.encode(text, special_tokens=False)[:cut]
    ids = head + tokenizer.encode(then, special_tokens=False)
    whole, found = tokenizer.decode(ids), "".join(pieces(tokenizer, ids))
    sound = [tokenizer.decode(head[:count]) for count in range(len(head) + 1)]
    assert found.startswith(max((one for one in sound if LOST not in one), key=len))
    assert (LOST in found) == (LOST in whole)
    if kind == "byte level":
        assert found == whole


def test_a_character_comes_with_its_last_byte() -> None:
    """Nothing waits for the end of a run of bytes."""
    tokenizer = TOKENIZERS["byte fallback"]
    ids = tokenizer.encode("你们👍🏽", special_tokens=False)
    assert [piece for piece in pieces(tokenizer, ids) if piece] == ["你", "们", "👍", "🏽"]


@kinds
def test_a_long_run_of_bytes_is_not_decoded_from_its_start_again_and_again(kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    decoder, longest, decode = IncrementalDecoder(tokenizer), 0, IncrementalDecoder._decode

    class Counted(IncrementalDecoder):
        def _decode(self, ids: Any) -> str:
            nonlocal longest
            longest = max(longest, len(ids))
            return decode(self, ids)

    decoder = Counted(tokenizer)
    ids = tokenizer.encode("你们" * 200, special_tokens=False)
    assert "".join(decoder.push([one]) for one in ids) == tokenizer.decode(ids)
    assert longest < 64


# ------------------------------------------------------------------ stop strings


def stream(
    tokenizer: HFTokenizer, ids: tuple[int, ...], params: SamplingParams
) -> tuple[list[str], str, str | int | None]:
    """What a caller sees after each token, at last, and why it ended."""
    adapter: Any = SimpleNamespace(name="toy", decoding=PlainDecoding())
    outputs = OutputProcessor(adapter, tokenizer)
    request = PreparedRequest(request_id="r", token_ids=(1,), sampling=params, root_key=b"")
    outputs.add(outputs.begin(request, RequestTimings()))
    seen: list[str] = []
    stop = None
    for one in ids:
        stop = outputs.extend("r", 0, [one], ())
        if stop is not None:
            break
        seen.append(outputs.output("r").text)
    outputs.end("r", 0, "length" if stop is None else "stop", stop)
    output = outputs.output("r").outputs[0]
    return seen, output.text, output.stop_reason


@kinds
@given(text=TEXTS, data=st.data(), included=st.booleans())
def test_a_stop_string_ends_the_text_and_is_never_shown_by_halves(
    kind: str, text: str, data: st.DataObject, included: bool
) -> None:
    """Wherever it begins and ends: between tokens, in them, inside a character of several points."""
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode(text, special_tokens=False)
    whole = tokenizer.decode(ids)
    stops = tuple(data.draw(st.lists(stop_strings(whole), min_size=1, max_size=3)))
    seen, final, reason = stream(
        tokenizer, ids, SamplingParams(stop=stops, include_stop_str_in_output=included)
    )
    if not any(stop in whole for stop in stops):
        assert (final, reason) == (whole, None)
    else:
        assert reason in stops
        start = whole.find(str(reason))
        assert final == whole[: start + (len(str(reason)) if included else 0)]
        assert not any(stop in final for stop in stops) or included
    for earlier, later in pairwise([*seen, final]):
        assert later.startswith(earlier), "a piece was taken back"
    assert all(not any(stop in text for stop in stops) for text in seen)


def stop_strings(whole: str) -> st.SearchStrategy[str]:
    places = st.tuples(st.integers(0, max(0, len(whole) - 1)), st.integers(1, 4))
    inside = places.map(lambda place: whole[place[0] : place[0] + place[1]]).filter(bool)
    return st.one_of(st.sampled_from(WHOLE), inside) if whole else st.sampled_from(WHOLE)
