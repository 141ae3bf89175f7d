"""What becomes of an answer's text, against transformers' tokenizer of Nougat and processor of Donut."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mmcore_nougat.forms import token2json
from mmcore_nougat.markdown import markdown, markdown_compatible
from mmcore_nougat.repeats import MISSING, likeness

pytest.importorskip("nltk")
ratio = pytest.importorskip("Levenshtein").ratio
nougat: Any = pytest.importorskip("transformers.models.nougat.tokenization_nougat")
DonutProcessor: Any = pytest.importorskip("transformers").DonutProcessor

PAGE = r"""# Nougat: Neural Optical Understanding for Academic Documents

Lukas Blecher1

## 1 Introduction

The majority of knowledge is stored in books_a_, see https://arxiv.org/abs/2308.13418.

\[E = mc^2\] (1)

(2.1a) \[\bm{x}_{t+1} = \mbox{\boldmath$y$}\]

* 1.1 first - 1.1.2 second - third one
- one item - another item

\begin{table} \begin{tabular}{l l} a & b \\ c & d \\ \end{tabular} \end{table} Table 1: Results.

Footnote 1: footnotetext: It is known.

[FOOTNOTE:2]said below[ENDFOOTNOTE]

###### Abstract

``` for i in x: y ```

* [1] A. B. C. D. E. F. G. H. I. J. K. L. Many names.
* [2][] L. Blecher, Nougat.

## 3"""
REFERENCE = "* [{n}] J. Smith and A. Jones, A study of the matter, Journal of Studies 12 (1999) {n}."
MADE_UP = "\n".join(["Said before.", "", "## References", "", *(REFERENCE.format(n=n) for n in range(1, 60))])
REPEATED = "It began well. Then came this. " + "And we say the same thing once more, as we always do. " * 9

PIECES = (
    "# Title\n", "## 3.1\n", "###### Abstract\n", "#\n", "a", " ", "\n", "\n\n", "The model reads pages. ",
    "word", "\\[x^2\\] (1)\n", "(1.2b) \\[y\\]\n", "\\[x\\] (3) \\[y\\]\n", "* [3][] Name\n", "}", ",",
    ". ", "* [12] A. B. C. D. E. F. G. H. I. J. K. L.\n", "- one - two - 1.1 three\n", "* one * iv.1 two\n",
    ".\n", "_a_", "_a__b_",
    "\\begin{table} \\begin{tabular}{l l} a & b \\\\ \\end{tabular} \\end{table} Tab",
    "\\begin{tabular}{l l}  & \\\\ \\end{tabular}", "\\begin{tabular}{}\n\n\\end{tabular}",
    "[leftmargin=*]", "\nFootnote 2: thanks: us\n\n", "[FOOTNOTE:1]x[ENDFOOTNOTE]", "\\begin{array}[]{c}",
    "**bold**", "12", "*", "**S. A. B.**\n", "https://arxiv.org/a_b?c=d", "\\bm{x}",
    "\\mbox{\\boldmath$z$}", "```\nx = 1\n```", "Figure 1: A", "Table 2", "## References\n\n",
    "[MISSING_PAGE_EMPTY:3]\n", "é漢İ", "x" * 101, "\n* [leftmargin=*]\n",
)  # fmt: skip


def reference(text: str, *, compatible: bool = True) -> str:
    found: str = nougat.NougatTokenizer().post_process_generation(text, fix_markdown=compatible)
    return found


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Pieces that the expressions look for, some of them many times over, in any order."""
    parts = st.tuples(
        st.lists(st.sampled_from(PIECES), max_size=8).map("".join), st.sampled_from([1, 1, 1, 2, 25])
    )
    numbered = draw(st.lists(parts, max_size=6))
    return "".join("".join(text.replace("12", str(n)) for n in range(times)) for text, times in numbered)


@example(text=PAGE)
@example(text=MADE_UP)
@example(text=REPEATED)
@example(text="")
@given(text=texts())
@settings(max_examples=200)
def test_markdown_equals_the_reference(text: str) -> None:
    assert markdown(text) == reference(text)
    assert markdown(text, compatible=False) == reference(text, compatible=False)


@pytest.mark.slow
@given(text=texts())
@settings(max_examples=5000)
def test_much_markdown_equals_the_reference(text: str) -> None:
    assert markdown(text) == reference(text)


LINES = ("* [{n}] A. Name, The same title, 19{n}.", "{n}", "", "Another line {n} of text", "## References")
lines = st.lists(st.tuples(st.sampled_from(LINES), st.integers(1, 30)), min_size=1, max_size=6)


@given(parts=lines)
@settings(max_examples=100)
def test_made_up_references_are_cut_as_the_reference_does(parts: list[tuple[str, int]]) -> None:
    text = "\n".join(line.format(n=n) for line, times in parts for n in range(times))
    assert markdown(text) == reference(text)


def test_a_page_becomes_readable() -> None:
    found = markdown(PAGE)
    for said in (
        r"\[E = mc^2 \tag{1}\]",
        r"\[\mathbf{x}_{t+1} = \mathbf{y} \tag{2.1a}\]",
        "[https://arxiv.org/abs/2308.13418](https://arxiv.org/abs/2308.13418)",
        "\\begin{table}\n\\begin{tabular}{l l} a & b",
        "- one item\n- another item",
        "* [2] L. Blecher",
    ):
        assert said in found
    for gone in ("said below", "Many names", "## 3"):
        assert gone not in found
    assert MISSING in markdown(MADE_UP)
    assert markdown(REPEATED).count("once more") == 2  # four sentences over and over, two of them alike


WORDS = frozenset({"word", "pages"})


@pytest.mark.parametrize("text", ["a word", "a wor", "no pages", "it ends.", "word"])
def test_a_page_that_ends_within_a_word_gets_no_blank(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference asks a corpus of nltk, where it is there."""
    corpus = SimpleNamespace(words=SimpleNamespace(words=lambda: list(WORDS)))
    monkeypatch.setattr(nougat, "nltk", SimpleNamespace(corpus=corpus))
    assert markdown(text, words=WORDS) == reference(text)


@given(text=texts())
def test_compatible_markdown_equals_the_reference(text: str) -> None:
    assert markdown_compatible(text) == nougat.markdown_compatible(text)


@given(one=st.text("abcd é", max_size=40), other=st.text("abcd é", max_size=40))
def test_likeness_is_levenshtein_s_ratio(one: str, other: str) -> None:
    assert likeness(one, other) == pytest.approx(ratio(one, other), abs=1e-12)


# ------------------------------------------------------------------ forms

TOKENS = frozenset({"<paid/>", "<sep/>", "<s_nm>", "</s_nm>"})
FIELDS = (
    "<s_nm>", "</s_nm>", "<s_menu>", "</s_menu>", "<S_NM>", "</s_NM>", "<sep/>", "<paid/>", "<other/>", "Tea",
    "2.50", "<s_", ">", "<s_a.b>", "</s_a.b>", "\n", " ",
)  # fmt: skip


class Processor(DonutProcessor):  # type: ignore[misc]
    """The reference's method, which needs nothing else of it."""

    def __init__(self) -> None:
        pass


@example(text="<s_menu><s_nm>Tea</s_nm><sep/><s_nm>Cake</s_nm><s_a.b><paid/></s_a.b></s_menu>")
@example(text="<s_nm>Tea<sep/>Cake</s_nm>")
@example(text="<s_nm>Tea</s_nm><sep/>")
@given(text=st.lists(st.sampled_from(FIELDS), max_size=14).map("".join))
@settings(max_examples=400)
def test_fields_equal_the_reference(text: str) -> None:
    assert token2json(text, TOKENS) == Processor().token2json(text, added_vocab=TOKENS)


def test_fields_are_nested_and_listed() -> None:
    text = "<s_menu><s_nm>Tea</s_nm><sep/><s_nm>Cake</s_nm></s_menu><s_total> 5 </s_total>"
    assert token2json(text) == {"menu": [{"nm": "Tea"}, {"nm": "Cake"}], "total": "5"}
    assert token2json("nothing") == {"text_sequence": "nothing"}


def test_a_list_may_be_long() -> None:
    """Longer than calls may be nested."""
    text = "<s_menu>" + "<sep/>".join(f"<s_nm>{n}</s_nm>" for n in range(3000)) + "</s_menu>"
    assert len(token2json(text)["menu"]) == 3000
