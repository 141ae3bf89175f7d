"""What the lines say: words, invented words, letters, digits, codes, labels and short phrases.

Nothing is drawn that a reader could not tell apart: no lone `l`, `O` or `0`, no `I` or `O` among
random letters or codes, no string whose case could only be told from its size.
A text belongs to the held-out set by the hash of its lower-case form, and so does a dictionary word.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

SHAPE_TWINS = set("cosuvwxzkpyj")  # letters whose capital is the same form, only larger
LOWER = "abcdefghjkmnpqrstuvwxyz"
UPPER = "ABCDEFGHJKLMNPQRSTUVWXYZ"
MIXED = "ABDEFGHJKLMNPQRTabdefghijmnqrtuy"
LONE = "ABDEFGHLMNQRTabdefghmnqrt2345678"
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "June", "July", "Aug", "Sept", "Oct", "Nov", "Dec")
LABELS = (
    "Room",
    "Gate",
    "Platform",
    "Exit",
    "Level",
    "Floor",
    "Bus",
    "Line",
    "Track",
    "Seat",
    "Row",
    "Table",
    "Unit",
    "Page",
    "Lot",
    "Desk",
    "Dock",
    "Bay",
    "Lane",
    "Step",
    "No.",
    "Box",
    "Door",
    "Hall",
    "Zone",
)
KINDS = ("words", "pseudo", "letters", "digits", "codes", "labels", "phrase", "lone")
WEIGHTS = (34, 14, 15, 15, 9, 5, 6, 2)
DEMO_TEXTS = frozenset({"harbour lights", "fresh bread daily", "north gate 12", "two rivers", "open at 9:30"})


def bucket(text: str, buckets: int) -> int:
    """A stable hash bucket of the lower-case text."""
    return int.from_bytes(hashlib.blake2b(text.lower().encode(), digest_size=4).digest(), "big") % buckets


def text_held_out(text: str) -> bool:
    """One text in forty, and the demonstration texts, never appear in training."""
    return bucket(text, 40) == 0 or text.lower() in DEMO_TEXTS


def word_held_out(word: str) -> bool:
    """One dictionary word in twenty never appears in a training line."""
    return bucket("word:" + word, 20) == 0


def readable(text: str) -> bool:
    """False where two strings would look alike: see the module's first paragraph."""
    letters = [c for c in text if c.isalpha()]
    if letters and all(c.lower() in SHAPE_TWINS for c in letters):
        return False
    return bool(re.search(r"[^lIO0oi1|.,:;'!\- ]", text))


@dataclass(frozen=True)
class TextSource:
    """Draws lines from one side of the hash split."""

    words: tuple[str, ...]
    held_out: bool

    def line(self, rng: Random, max_chars: int, kind: str | None = None) -> str:
        """One line of 1 to `max_chars` characters (at most 24)."""
        limit = min(24, max_chars)
        for _ in range(10_000):
            chosen = kind or rng.choices(KINDS, WEIGHTS)[0]
            text = MAKERS[chosen](rng, limit, self.words)
            if 1 <= len(text) <= limit and readable(text) and self._mine(text, chosen):
                return text
        raise RuntimeError(f"no {kind} line of at most {limit} characters found")

    def _mine(self, text: str, kind: str) -> bool:
        if self.held_out and kind in ("words", "phrase") and any(c.isalpha() for c in text):
            return True  # made of held-out words only
        if kind == "lone" or (len(text) <= 2 and kind in ("letters", "pseudo")):
            return True  # too few exist to split
        return text_held_out(text) == self.held_out


def load_words(path: Path, held_out: bool) -> TextSource:
    """The source over the training words or over the held-out words of `words.txt`."""
    words = path.read_text("ascii").split()
    return TextSource(tuple(w for w in words if word_held_out(w.lower()) == held_out), held_out)


def _styled(rng: Random, text: str) -> str:
    roll = rng.random()
    if roll < 0.45:
        return text
    if roll < 0.65:
        return text[:1].upper() + text[1:]
    return text.title() if roll < 0.8 else text.upper()


def _words(rng: Random, limit: int, words: Sequence[str]) -> str:
    target = rng.randint(2, limit) if limit > 2 else limit
    picked = [_short(rng, words, limit)]
    while len(" ".join(picked)) < target and len(picked) < 4:
        picked.append(rng.choice(words))
        if len(" ".join(picked)) > limit:
            picked.pop()
            break
    return _styled(rng, " ".join(picked))


def _short(rng: Random, words: Sequence[str], limit: int) -> str:
    word = rng.choice(words)
    for _ in range(60):
        if len(word) <= limit:
            break
        word = rng.choice(words)
    return word


def _pseudo(rng: Random, limit: int, words: Sequence[str]) -> str:
    def one() -> str:
        parts = []
        for _ in range(rng.randint(1, 4)):
            onset = rng.choice(
                (
                    "b",
                    "br",
                    "c",
                    "ch",
                    "d",
                    "dr",
                    "f",
                    "g",
                    "gr",
                    "h",
                    "j",
                    "k",
                    "l",
                    "m",
                    "n",
                    "p",
                    "pl",
                    "qu",
                    "r",
                    "s",
                    "st",
                    "t",
                    "th",
                    "tr",
                    "v",
                    "w",
                    "y",
                    "z",
                    "",
                )
            )
            parts.append(
                onset + rng.choice("aaeeiioouuy") + rng.choice(("", "", "n", "r", "s", "l", "m", "x", "ck"))
            )
        return "".join(parts)

    text = one()
    if rng.random() < 0.4:
        text += " " + one()
    return _styled(rng, text)


def _letters(rng: Random, limit: int, words: Sequence[str]) -> str:
    alphabet = rng.choice((LOWER, LOWER, UPPER, MIXED))
    length = rng.randint(min(3, limit), min(12, limit))
    text = "".join(rng.choice(alphabet) for _ in range(length))
    if length >= 6 and rng.random() < 0.3:
        cut = rng.randint(2, length - 3)
        text = text[:cut] + " " + text[cut + 1 :]
    return text


def _number(rng: Random, digits: int) -> str:
    return str(rng.randint(1, 9)) + "".join(str(rng.randint(0, 9)) for _ in range(digits - 1))


def _digits(rng: Random, limit: int, words: Sequence[str]) -> str:
    roll = rng.randrange(12)
    day, month, year = rng.randint(1, 31), rng.randint(1, 12), rng.randint(1900, 2099)
    forms: tuple[Callable[[], str], ...] = (
        lambda: _number(rng, rng.randint(2, min(12, max(2, limit)))),
        lambda: _number(rng, rng.randint(2, min(8, max(2, limit)))),
        lambda: f"{year}-{month:02}-{day:02}",
        lambda: f"{day:02}/{month:02}/{year}",
        lambda: f"{day} {MONTHS[month - 1]} {year}",
        lambda: f"${_number(rng, rng.randint(1, 4))}.{rng.randint(0, 99):02}",
        lambda: f"{rng.randint(1, 23)}:{rng.randint(0, 59):02}",
        lambda: f"{_number(rng, 3)}-{_number(rng, 4)}",
        lambda: f"{_number(rng, rng.randint(1, 2))}%",
        lambda: f"{rng.randint(1, 999_999_999):,}",
        lambda: f"{_number(rng, rng.randint(1, 4))}.{_number(rng, rng.randint(1, 3))}",
        lambda: " ".join(_number(rng, rng.randint(2, 4)) for _ in range(rng.randint(2, 4))),
    )
    return forms[roll]()


def _codes(rng: Random, limit: int, words: Sequence[str]) -> str:
    def group() -> str:
        alphabet = rng.choice((UPPER, "0123456789", UPPER + "23456789"))
        return "".join(rng.choice(alphabet) for _ in range(rng.randint(1, 5)))

    return rng.choice(("-", " ", "", "/")).join(group() for _ in range(rng.randint(1, 4)))


def _labels(rng: Random, limit: int, words: Sequence[str]) -> str:
    tail = _number(rng, rng.randint(1, 4)) if rng.random() < 0.7 else rng.choice(UPPER) + _number(rng, 1)
    text = f"{rng.choice(LABELS)} {tail}"
    return text.upper() if rng.random() < 0.15 else text


def _phrase(rng: Random, limit: int, words: Sequence[str]) -> str:
    one, two = _short(rng, words, max(2, limit - 3)), _short(rng, words, max(2, limit // 2))
    forms = (
        f"{one}.",
        f"{one}!",
        f"{one}?",
        f"{one}, {two}",
        f"{one}: {_number(rng, 2)}",
        f"{one} & {two}",
        f"({one})",
        f"{one}/{two}",
        f"{one}-{two}",
        f"{one}; {two}",
        f"#{_number(rng, 2)} {one}",
        f"{_number(rng, 1)} + {_number(rng, 2)}",
        f"{one}@{two}",
        f"{one}'s {two}",
        f"{_number(rng, 2)} {one}",
    )
    text = rng.choice(forms)
    return text if rng.random() < 0.7 else text[:1].upper() + text[1:]


def _lone(rng: Random, limit: int, words: Sequence[str]) -> str:
    return rng.choice(LONE)


MAKERS: dict[str, Callable[[Random, int, Sequence[str]], str]] = {
    "words": _words,
    "pseudo": _pseudo,
    "letters": _letters,
    "digits": _digits,
    "codes": _codes,
    "labels": _labels,
    "phrase": _phrase,
    "lone": _lone,
}
