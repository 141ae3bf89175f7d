"""``docs/laws.md`` has a heading for each law, in their order, and repeats what each promises."""

from __future__ import annotations

import re
from pathlib import Path

from mmcore.testing.laws import LAWS

PAGE = (Path(__file__).parents[2] / "docs" / "laws.md").read_text(encoding="utf-8")


def test_each_law_has_its_heading_where_its_page_leads() -> None:
    headings = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    assert headings == [law.name.replace("_", " ") for law in LAWS]
    assert [f"docs/laws.md#{heading.replace(' ', '-')}" for heading in headings] == [law.page for law in LAWS]


def test_each_section_says_what_is_promised_and_how_it_is_broken() -> None:
    sections = re.split(r"^## .+$", PAGE, flags=re.MULTILINE)[1:]
    for law, section in zip(LAWS, sections, strict=True):
        text = " ".join(section.split())
        assert text.startswith(law.about)
        assert "Usually broken by: " in text
