"""A tokenizer whose special tokens nobody can type.

Each added token gets an unguessable name in a copy of the tokenizer's definition. Trusted text has its
special tokens renamed before it is encoded, untrusted text goes in as it is: the same normaliser,
pre-tokeniser and merges run over the whole, and what a user typed is just text.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Mapping
from typing import Any


def unguessable_names(tokens: Collection[str]) -> dict[str, str]:
    """For each token a name between private-use characters, new in each process."""
    nonce = secrets.token_hex(16)
    return {token: f"\U000f5d00{nonce}{index}\U000f5d01" for index, token in enumerate(sorted(tokens))}


def guarded_definition(definition: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """``tokenizer.json`` with the tokens ``names`` renamed, wherever they are known by name."""
    added = [{**t, "content": names.get(t["content"], t["content"])} for t in definition["added_tokens"]]
    model = _guarded_model(definition["model"], names)
    return json.dumps({**definition, "added_tokens": added, "model": model})


def _guarded_model(model: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    products = _merge_products(model)
    renamed = {token: name for token, name in names.items() if token not in products}
    vocab = model["vocab"]
    if isinstance(vocab, list):  # Unigram: pairs of token and score
        vocab = [[renamed.get(token, token), score] for token, score in vocab]
    else:
        vocab = {renamed.get(token, token): index for token, index in vocab.items()}
    guarded = {**model, "vocab": vocab}
    if model.get("unk_token") in renamed:
        guarded["unk_token"] = renamed[model["unk_token"]]
    return guarded


def _merge_products(model: Mapping[str, Any]) -> set[str]:
    """Tokens that merges build: they keep their name in the vocabulary."""
    pairs = (m.split(" ") if isinstance(m, str) else m for m in model.get("merges") or ())
    return {"".join(pair) for pair in pairs}
