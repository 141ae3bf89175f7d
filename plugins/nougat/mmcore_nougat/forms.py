"""Donut's answers are fields: ``<s_menu><s_nm>Tea</s_nm><sep/><s_nm>Cake</s_nm></s_menu>``.

After ``DonutProcessor.token2json`` of transformers 5.24, to which it is equal.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any

_OPENING = "<s_"
_SEPARATOR = "<sep/>"


def token2json(text: str, tokens: Container[str] = ()) -> Any:
    """The fields of an answer, special tokens included, as dictionaries, lists and strings.

    A value that is one of ``tokens`` and looks like ``<paid/>`` loses its brackets. Text without any field is
    ``{"text_sequence": text}``; fields before a separator make it a list.
    """
    groups, rest = _groups(text, tokens)
    if len(groups) > 1:
        return groups if groups[-1] else groups[:-1]
    return groups[0] or {"text_sequence": rest}


def _groups(text: str, tokens: Container[str]) -> tuple[list[dict[str, Any]], str]:
    """Fields between separators, and the text that is left without any field."""
    groups: list[dict[str, Any]] = [{}]
    while text and (found := _opening(text)):
        key = found[len(_OPENING) : -1]
        end = re.search(f"</s_{re.escape(key)}>", text, re.IGNORECASE)
        if end is None:
            text = text.replace(found, "")
            continue
        inner = re.search(f"{re.escape(found)}(.*?){re.escape(end[0])}", text, re.IGNORECASE | re.DOTALL)
        if inner is not None:
            _put(groups[-1], key, inner[1].strip(), tokens)
        text = text[text.find(end[0]) + len(end[0]) :].strip()
        if text.startswith(_SEPARATOR):
            text = text[len(_SEPARATOR) :]
            groups.append({})
    return groups, text


def _opening(text: str) -> str | None:
    """The first opening token, whole."""
    start = re.search(_OPENING, text, re.IGNORECASE)
    end = -1 if start is None else text.find(">", start.start())
    return None if start is None or end < 0 else text[start.start() : end + 1]


def _put(fields: dict[str, Any], key: str, content: str, tokens: Container[str]) -> None:
    """``content`` under ``key``: fields of its own, or values between separators; one stands by itself."""
    if _OPENING in content and "</s_" in content:
        groups, _ = _groups(content, tokens)
        values: list[Any] = groups if groups[-1] else groups[:-1]
        if not values:
            return
    else:
        values = [_value(part.strip(), tokens) for part in content.split(_SEPARATOR)]
    fields[key] = values[0] if len(values) == 1 else values


def _value(leaf: str, tokens: Container[str]) -> str:
    return leaf[1:-2] if leaf in tokens and leaf.startswith("<") and leaf.endswith("/>") else leaf
