"""Nougat's answer to markdown: what the model is known to get wrong is mended or taken out.

Equal to ``NougatTokenizer.post_process_generation`` of transformers 5.24, after ``postprocessing.py`` of
facebookresearch/nougat: the same expressions in the same order.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

from mmcore_nougat.repeats import without_made_up_references, without_repeated_end

Edits = Sequence[tuple[re.Pattern[str], str]]


def _edits(*pairs: tuple[str, str], flags: re.RegexFlag = re.MULTILINE) -> Edits:
    return [(re.compile(pattern, flags), replacement) for pattern, replacement in pairs]


def _edited(text: str, edits: Edits) -> str:
    for pattern, replacement in edits:
        text = pattern.sub(replacement, text)
    return text


_LONG_TITLES = _edits((r"(?:\n|^)#+ \d*\W? ?(.{100,})", r"\n\1"), flags=re.RegexFlag(0))
_EMPTY_TITLES = _edits((r"^#+ (?:[\d+\.]+|[ixv\.]+)?\s*(?:$|\n\s*)", ""))
_REFERENCES = _edits(
    (r"^\* \[\d+\](\s?[A-W]\.+\s?){10,}.*$", ""),  # names without end
    (r"^(\* \[\d+\])\[\](.*)$", r"\1\2"),
)
_BODY = _edits(
    (r"(^\w\n\n|\n\n\w$)", ""),  # a letter alone at either end
    (r"([\s.,()])_([a-zA-Z0-9])__([a-zA-Z0-9]){1,3}_([\s.,:()])", r"\1\(\2_{\3}\)\4"),
    (r"([\s.,\d])_([a-zA-Z0-9])_([\s.,\d;])", r"\1\(\2\)\3"),
    (r"(\nFootnote .*?:) (?:footnotetext|thanks):\W*(.*(?:\n\n|$))", r"\1 \2"),
    (r"\[FOOTNOTE:.+?\](.*?)\[ENDFOOTNOTE\]", ""),
    flags=re.RegexFlag(0),
)
_EMPTY_TABLES = _edits(
    (r"\\begin{tabular}{([clr ]){2,}}\s*[& ]*\s*(\\\\)? \\end{tabular}", ""),
    (r"(\*\*S\. A\. B\.\*\*\n+){2,}", ""),
    flags=re.RegexFlag(0),
)
_EMPTY_LINES = _edits((r"^#+( [\[\d\w])?$", ""), (r"^\.\s*$", ""), (r"\n{3,}", "\n\n"))
_TAGS = _edits(
    (r"^\(([\d.]+[a-zA-Z]?)\) \\\[(.+?)\\\]$", r"\[\2 \\tag{\1}\]"),
    (r"^\\\[(.+?)\\\] \(([\d.]+[a-zA-Z]?)\)$", r"\[\1 \\tag{\2}\]"),
    (r"^\\\[(.+?)\\\] \(([\d.]+[a-zA-Z]?)\) (\\\[.+?\\\])$", r"\[\1 \\tag{\2}\] \3"),
)
_LINKS = _edits(
    (r"\\mbox{ ?\\boldmath\$(.*?)\$}", r"\\mathbf{\1}"),
    (
        r"((?:http|ftp|https):\/\/(?:[\w_-]+(?:(?:\.[\w_-]+)+))(?:[\w.,@?^=%&:\/~+#-]*[\w@?^=%&\/~+#-]))",
        r"[\1](\1)",
    ),
    flags=re.RegexFlag(0),
)
_ALGORITHMS = _edits((r"```\s*(.+?)\s*```", r"```\n\1\n```"), flags=re.DOTALL)


def markdown(text: str, *, compatible: bool = True, words: Container[str] | None = None) -> str:
    """A page's raw answer as markdown.

    ``compatible`` also writes equation numbers, links and algorithms as other readers of markdown know them.
    A page that ends with one of ``words`` gets a blank at its end, for the next page; None: each page does.
    """
    text = _edited(text, _LONG_TITLES).strip().replace("\n* [leftmargin=*]\n", "\n")
    text = _without_last_title(_edited(text, _EMPTY_TITLES))
    text = without_made_up_references(without_repeated_end(text))
    text = _lists(_edited(_edited(text, _REFERENCES), _BODY))
    text = _tables(_joinable(text, words)).replace("\\begin{array}[]{", "\\begin{array}{")
    text = _edited(_edited(text, _EMPTY_TABLES), _EMPTY_LINES)
    return markdown_compatible(text) if compatible else text


def markdown_compatible(text: str) -> str:
    text = _edited(text, _TAGS).replace(r"\. ", ". ")
    text = text.replace(r"\bm{", r"\mathbf{").replace(r"{\\bm ", r"\mathbf{")
    return _edited(_edited(text, _LINKS), _ALGORITHMS)


def _without_last_title(text: str) -> str:
    """A title with nothing below it was most likely made up."""
    above, newline, last = text.rpartition("\n")
    return above if newline and last.startswith("#") and last.lstrip("#").startswith(" ") else text


# ------------------------------------------------------------------ lists

_ITEM = re.compile(r". ([-*]) ")
_NUMERAL = re.compile(r"^[\dixv]+((?:\.[\dixv])?)+$", re.IGNORECASE | re.MULTILINE)


def _lists(text: str) -> str:
    """A line for each item of a list that came as one line."""
    lines = text.split("\n")
    found = [_items(line, is_first=n == 0) for n, line in enumerate(lines)]
    if found[-1] is not lines[-1]:
        found[-1] += "\n"
    return "\n".join(found)


def _items(line: str, *, is_first: bool) -> str:
    """The line itself where it is no list. Items are indented by how deep their numeral is."""
    found = _ITEM.search(line)
    if found is None or line[0] not in "-*":
        return line
    mark, items = f"{found[1]} ", []
    for n, part in enumerate(line.split(f"{found[1]} ")[1:]):
        item = part.strip()
        numeral, _, rest = item.partition(" ")
        if rest:
            level = numeral.count(".") if _NUMERAL.match(numeral) else 0
            own = mark if n or is_first else f"{line[0]} "
            items.append(("\n" if n else "") + "\t" * level + own + item)
    return "".join(items)


# ------------------------------------------------------------------ ends and tables


def _joinable(text: str, words: Container[str] | None) -> str:
    """With the blank or the empty line that belongs between it and the next page."""
    if text.endswith((".", "}")):
        text += "\n\n"
    if re.match(r"[A-Z0-9,;:]$", text):
        return f"{text} "
    if text.startswith(("#", "**", "\\begin")):
        return f"\n\n{text}"
    if text.rpartition("\n")[2].startswith(("#", "Figure", "Table")):
        return f"{text}\n\n"
    return f"{text} " if words is None or text.rpartition(" ")[2] in words else text


def _tables(text: str) -> str:
    for line in text.split("\n"):
        if line.count("\\begin{tabular}") > 15 or line.count("\\multicolumn") > 60 or line.count("&") > 400:
            text = text.replace(line, "")
    text = text.replace("\\begin{table} \\begin{tabular}", "\\begin{table}\n\\begin{tabular}")
    text = text.replace("\\end{tabular} \\end{table}", "\\end{tabular}\n\\end{table}")
    text = text.replace("\\end{table} Tab", "\\end{table}\nTab")
    text = re.sub(r"(^.+)\\begin{tab", r"\1\n\\begin{tab", text, flags=re.MULTILINE)
    text = text.replace(r"\begin{tabular}{l l}  & \\ \end{tabular}", "")
    return text.replace("\\begin{tabular}{}\n\n\\end{tabular}", "")
