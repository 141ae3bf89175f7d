"""The checkpoint's ``tokenizer.json``, with text a user typed kept apart from the template's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

from tokenizers import Tokenizer as RustTokenizer

from mmcore.adapter import Tokenizer
from mmcore.errors import CheckpointError, PromptError
from mmcore.inputs.tokenizer_guard import guarded_definition, unguessable_names
from mmcore.request import TextSegment

_KNOWN_TEXTS, _KNOWN_LENGTH = 64, 1024
"""How many texts of a template are remembered with their ids, and the longest of them."""
_WINDOW = 32
_CONTEXT = 8
_LONGEST_CHARACTER = 4
"""Bytes."""


class HFTokenizer:
    """Implements `mmcore.adapter.Tokenizer`. Thread-safe.

    Equal to the checkpoint's own tokenizer over text without added tokens. Padding, truncation and the
    post-processor of the file are left out: nothing is ever added to what is encoded.
    """

    def __init__(self, source: str) -> None:
        try:
            self._definition: dict[str, Any] = json.loads(source)
            self._rust = _quiet(RustTokenizer.from_str(source))
        except Exception as error:  # the parser raises bare Exception
            raise CheckpointError(f"tokenizer.json cannot be read: {error}") from None
        tokens = self._definition.get("added_tokens") or []
        # Runs of blanks that are ordinary vocabulary stay active: they carry no meaning of their own.
        self._special = {t["content"]: t["id"] for t in tokens if t["special"] or t["content"].strip()}
        self._special_ids = frozenset(self._special.values()) - {self._unknown_id()}
        longest_first = sorted(self._special, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._known: dict[str, tuple[int, ...]] = {}

    @property
    def vocab_size(self) -> int:
        return int(self._rust.get_vocab_size())

    def token_id(self, token: str) -> int | None:
        found = self._rust.token_to_id(token)
        return None if found is None else int(found)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return str(self._rust.decode(list(ids), skip_special_tokens=skip_special_tokens))

    def encode(self, text: str, *, special_tokens: bool) -> tuple[int, ...]:
        return self.encode_segments((TextSegment(text, trusted=special_tokens),))

    def encode_segments(self, segments: Sequence[TextSegment]) -> tuple[int, ...]:
        """Adjacent text as one string; special tokens are active where they lie in trusted text."""
        text = "".join([segment.text for segment in segments])
        if len(text) <= _KNOWN_LENGTH and all(segment.trusted or not segment.text for segment in segments):
            return self._encode_known(text)
        return self._encode_mixed(text, segments)

    def _encode_known(self, text: str) -> tuple[int, ...]:
        """Trusted text, which a template writes again for each request."""
        ids = self._known.get(text)
        if ids is None:
            ids = self._encode_mixed(text, (TextSegment(text, trusted=True),))
            if len(self._known) >= _KNOWN_TEXTS:
                self._known.clear()
            self._known[text] = ids
        return ids

    def _encode_mixed(self, text: str, segments: Sequence[TextSegment]) -> tuple[int, ...]:
        matches = list(self._pattern.finditer(text))
        trusted = _trusted_spans(segments)
        active = [m for m in matches if any(a <= m.start() and m.end() <= b for a, b in trusted)]
        if len(active) == len(matches):
            ids = self._ids(self._rust, text)
            if self._count_special(ids) == len(active):
                return ids
        return self._encode_guarded(segments)

    def _encode_guarded(self, segments: Sequence[TextSegment]) -> tuple[int, ...]:
        rust, names = self._guarded
        count, parts = 0, []
        for text, trusted in _merged(segments):
            if trusted:
                text, found = self._pattern.subn(lambda m: names[m.group()], text)
                count += found
            parts.append(text)
        ids = self._ids(rust, "".join(parts))
        if self._count_special(ids) > count:
            raise PromptError("the text holds a special token that this tokenizer cannot read as plain text")
        return ids

    @cached_property
    def _guarded(self) -> tuple[RustTokenizer, dict[str, str]]:
        """Built when somebody first types a special token."""
        names = unguessable_names(self._special)
        rust = _quiet(RustTokenizer.from_str(guarded_definition(self._definition, names)))
        moved = [t for t, name in names.items() if rust.token_to_id(name) != self._special[t]]
        if moved:
            raise CheckpointError(
                f"tokenizer.json lists its token {moved[0]!r} under an id that is not its own"
            )
        return rust, names

    def _ids(self, rust: RustTokenizer, text: str) -> tuple[int, ...]:
        try:
            return tuple(rust.encode(text, add_special_tokens=False).ids)
        except (TypeError, UnicodeEncodeError):
            raise PromptError("the text holds a lone surrogate, which is no character") from None

    def _count_special(self, ids: Sequence[int]) -> int:
        return sum(map(self._special_ids.__contains__, ids))

    def _unknown_id(self) -> int | None:
        model = self._definition["model"]
        if "unk_id" in model:
            return None if model["unk_id"] is None else int(model["unk_id"])
        return None if model.get("unk_token") is None else self.token_id(model["unk_token"])


class IncrementalDecoder:
    """Text of a growing sequence of tokens; a character whose bytes are not all there is held back.

    What was given out stays: where bytes never become a character, a decoder that gives up the whole run of
    them (byte fallback) shows replacement characters for those alone that were not out yet.
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special_tokens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._ids: list[int] = []
        self._sent = 0

    def push(self, ids: Sequence[int]) -> str:
        """The new text that these tokens complete; all pieces joined are `Tokenizer.decode` of all tokens."""
        self._ids.extend(ids)
        text = self._decode(self._ids)
        end = len(text.rstrip("\ufffd"))  # further bytes may turn all that is behind it into characters
        piece = text[self._sent : end]
        self._sent = max(self._sent, end)
        if len(self._ids) > _WINDOW and end == len(text):
            self._shorten(text)
        return piece

    def flush(self) -> str:
        """What was held back, as it stands."""
        piece = self._decode(self._ids)[self._sent :]
        self._sent += len(piece)
        return piece

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=self._skip)

    def _shorten(self, text: str) -> None:
        """Forget old tokens, keeping a few: some decoders treat the first token in a way of its own."""
        for count in range(_CONTEXT, _CONTEXT + _LONGEST_CHARACTER):  # one of them begins a character
            kept = self._ids[-count:]
            kept_text = self._decode(kept)
            if kept_text and text.endswith(kept_text):
                self._ids, self._sent = kept, len(kept_text)
                return


def _quiet(rust: RustTokenizer) -> RustTokenizer:
    rust.no_padding()
    rust.no_truncation()
    return rust


def _merged(segments: Sequence[TextSegment]) -> Iterator[tuple[str, bool]]:
    """Neighbours of equal trust, joined."""
    text, trusted = "", False
    for segment in segments:
        if segment.trusted != trusted and text:
            yield text, trusted
            text = ""
        text, trusted = text + segment.text, segment.trusted
    yield text, trusted


def _trusted_spans(segments: Sequence[TextSegment]) -> list[tuple[int, int]]:
    merged = list(_merged(segments))
    ends = [0]
    for text, _ in merged:
        ends.append(ends[-1] + len(text))
    return [span for span, (_, trusted) in zip(pairwise(ends), merged, strict=True) if trusted]
