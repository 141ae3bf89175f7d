"""Repetitions that got into a page's text: an end over and over again, references that were made up.

Part of `mmcore_nougat.markdown`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

MISSING = "[MISSING_PAGE_POST]"
_SHORTEST = 30
"""Characters of what counts as repeated."""
_ALIKE = 0.9
_SENTENCE_END = re.compile(r"[.?!\n]")


# ------------------------------------------------------------------ the end


def without_repeated_end(text: str) -> str:
    """The longest end that comes twice or more in a row stays once, up to the end of its sentence."""
    lower = text.lower()
    length = _repeated_length(lower)
    if not length:
        return text
    kept, end = lower, lower[-length:]
    while kept.endswith(end):
        kept = kept[:-length]
    return text[: _sentence_end(lower, len(kept), lower[len(kept) :])]


def _repeated_length(text: str) -> int:
    """Of the longest end that comes twice in a row; 0 where there is none."""
    count = len(text)
    lengths = range(count // 2 - 1, _SHORTEST - 1, -1)
    return next((n for n in lengths if text[-2 * n : -n] == text[-n:]), 0)


def _sentence_end(text: str, start: int, tail: str) -> int:
    """Where the first sentence after ``start`` ends that is in ``tail``; else as far as sentences go."""
    backwards = text[::-1]
    while True:
        after, before = _SENTENCE_END.search(text, start), _SENTENCE_END.search(backwards, start)
        if not (after and after.start() and before and before.start()):
            return start
        start = after.start() + 1
        if text[before.start() : after.start()] in tail:
            return start


# ------------------------------------------------------------------ references


def without_made_up_references(text: str) -> str:
    """Long runs of lines that are almost alike are replaced by a note that something is missing."""
    lines = text.split("\n")
    plain = [_plain(line) for line in lines]
    runs = [run for run in _runs(_alike_lines(plain)) if run[1] - run[0] > 15]
    for run in reversed([_whole_run(lines, plain[run[0]], run) for run in runs]):
        text = text.replace(run, f"\n\n{MISSING}\n\n")
    return re.sub(r"## References\n+\[MISSING_PAGE_POST(:\d+)?\]", r"\n\n[MISSING_PAGE_POST\1]", text)


def _plain(line: str) -> str:
    """Without digits, underscores and bold marks."""
    return re.sub(r"(?:[\d_]|\*\*)", "", line).strip()


def _alike_lines(plain: Sequence[str]) -> list[int]:
    """Lines that the next line with words is like, and the empty ones between."""
    alike: list[int] = []
    last = len(plain) - 1
    for line, text in enumerate(plain[:-1]):
        following = next((n for n in range(line + 1, last) if plain[n]), last)
        other = plain[following]
        fits = 3 < len(text) < 200 and 3 < len(other) < 200 and not text.startswith("[MISSING_PAGE")
        if fits and (text == other or likeness(text, other) > _ALIKE):
            alike += range(line, following)
    return sorted(set(alike))


def _runs(lines: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First line and one past the last, of lines that lie at most three apart."""
    if not lines:
        return
    first = lines[0]
    for line, following in pairwise(lines):
        if following - line > 3:
            yield first, line + 2
            first = following
    yield first, lines[-1] + 2


def _whole_run(lines: Sequence[str], base: str, run: tuple[int, int]) -> str:
    """The text of a run of lines like ``base``, with what before and after belongs to it."""
    first, is_cut = _run_start(lines, base, run[0])
    ends = (
        n for n in range(run[1], min(len(lines), run[1] + 5)) if likeness(base, _plain(lines[n])) < _ALIKE
    )
    last = min(next(ends, run[1]), len(lines) - 1)
    text = "\n".join(lines[first : last + 1])
    if is_cut and "* [" in text:
        text = "* [" + text.partition("* [")[2]
    common = _common_length(lines[last - 1], lines[last])
    if common is not None and common < len(lines[last]):
        text = text[: common - len(lines[last])]
    return text.strip()


def _run_start(lines: Sequence[str], base: str, start: int) -> tuple[int, bool]:
    """The first line, at most four before ``start``, and whether a line of another kind comes before it."""
    for line in range(max(0, start - 1), max(0, start - 5), -1):
        if lines[line] == "## References":
            return line, False
        if lines[line] and likeness(base, _plain(lines[line])) < _ALIKE:
            reference = _plain(lines[max(0, line - 1)].partition("* [")[2])
            belongs = len(reference) >= 0.75 * len(base) and likeness(base, reference) < _ALIKE
            return (line if belongs else line + 1), True
    return start, False


def _common_length(before: str, line: str) -> int | None:
    """How much of ``line`` was read when it differed from ``before``, numbers aside; None: nothing."""
    read, characters = 0, iter(line)
    for wanted in (c for c in before if not c.isnumeric()):
        found = ""
        for found in characters:
            read += 1
            if not found.isnumeric():
                break
        if found != wanted:
            break
    return read or None


def likeness(one: str, other: str) -> float:
    """Twice the longest common subsequence over both lengths: Levenshtein's ratio without substitutions.

    Hyyrö's bit-parallel recurrence (2004): bit i of ``row`` is 0 where the subsequence grows at ``one[i]``.
    """
    if not one and not other:
        return 1.0
    places: dict[str, int] = {}
    for i, character in enumerate(one):
        places[character] = places.get(character, 0) | 1 << i
    full = (1 << len(one)) - 1
    row = full
    for character in other:
        met = row & places.get(character, 0)
        row = (row + met | row - met) & full
    common = len(one) - row.bit_count()
    return 2 * common / (len(one) + len(other))
