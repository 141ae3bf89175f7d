"""Prompts: a template's words are the checkpoint's, and a user's words are nothing but words."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st
from tokenizers import Tokenizer

from mmcore.inputs.jinja import compile_template
from mmcore.inputs.layout import collapse
from mmcore.inputs.template import template_tokens
from mmcore.request import PreparedRequest
from mmcore.testing.law import law
from mmcore.testing.samples import Ask, asks, words
from mmcore.testing.subject import Subject


def _takes_words(subject: Subject) -> bool:
    return not subject.takes_no_words


def _answers_text_alone(subject: Subject) -> bool:
    return _takes_words(subject) and subject.least_items == 0


def text_ids(request: PreparedRequest) -> tuple[int, ...]:
    """Of the prompt; in a family with a context stage that reads it, the stage's."""
    return request.cross.text_ids if request.cross else request.token_ids


@law(applies=_answers_text_alone, text=lambda s: words())
def text_alone_is_untouched(subject: Subject, text: str) -> None:
    """A prompt without media has no items and ranges, counts its positions up, and decodes to its words."""
    request = subject.pipeline.prepare(text, request_id="text")
    assert not request.items, "a prompt without media has some"
    assert not request.ranges, "a prompt without media has ranges"
    if request.positions is not None:
        steps = list(range(request.num_tokens))
        assert all(axis == steps for axis in request.positions.values.tolist()), "text counts from 0 by 1"
        assert request.positions.delta == 0, f"the answer goes on at a distance of {request.positions.delta}"
    said = subject.checkpoint.tokenizer.decode(text_ids(request))
    assert said.strip() == text.strip(), f"the prompt says {said!r}"


def special_tokens(subject: Subject) -> list[str]:
    """What the tokenizer treats specially, and what stands for media."""
    source = subject.checkpoint.text("tokenizer.json") or "{}"
    added = [token["content"] for token in json.loads(source).get("added_tokens", [])]
    return [*added[:40], *(placeholder.text for placeholder in subject.adapter.placeholders)]


def typed_asks(subject: Subject) -> st.SearchStrategy[Ask]:
    """As `asks`, with a special token in each text."""
    tokens = st.sampled_from(special_tokens(subject) or ["<image>"])

    def typed(ask: Ask, token: str) -> Ask:
        return Ask(tuple(f"{part} {token} end" if isinstance(part, str) else part for part in ask.parts))

    with_words = asks(subject).filter(lambda ask: any(isinstance(part, str) for part in ask.parts))
    return st.builds(typed, with_words, tokens)


@law(applies=_takes_words, ask=typed_asks)
def a_typed_placeholder_takes_no_slot(subject: Subject, ask: Ask) -> None:
    """What a user types is plain text: it takes no medium's slot and no special token comes of it."""
    request = subject.prepared(ask)
    assert len(request.items) == len(ask.media), f"{len(request.items)} items of {len(ask.media)} media"
    plain = Ask(tuple("a" if isinstance(part, str) else part for part in ask.parts))
    wanted = _specials(subject, subject.prepared(plain))
    found = _specials(subject, request)
    assert found == wanted, "a typed special token became a special token of the prompt"


def _specials(subject: Subject, request: PreparedRequest) -> list[int]:
    """The special tokens of a prompt outside its items' rows, in order."""
    tokenizer = subject.checkpoint.tokenizer
    special = {tokenizer.token_id(token) for token in special_tokens(subject)}
    ids = text_ids(request)
    rows = {i for span in request.ranges for i in range(span.offset, span.offset + span.length)}
    return [token for i, token in enumerate(ids) if token in special and i not in rows]


# ------------------------------------------------------------------ the checkpoint's own template


def _has_template(subject: Subject) -> bool:
    return subject.checkpoint.chat_template is not None and _takes_words(subject) and subject.is_interleaved


def _takes_parts(subject: Subject) -> bool:
    """Its template writes placeholders itself; others get one string, and are tried on words."""
    return bool(getattr(subject.adapter.prompt, "parts", True)) and _renders(subject)


def _renders(subject: Subject) -> bool:
    try:
        _rendered(subject, [{"type": "text", "text": "a"}])
    except Exception:
        return False
    return True


def templated(subject: Subject) -> st.SearchStrategy[Ask]:
    return asks(subject) if _takes_parts(subject) else words().map(lambda text: Ask((text,)))


@law(needs=("ranges_use_each_row_once",), applies=_has_template, ask=templated)
def the_template_is_the_checkpoint_s_own(subject: Subject, ask: Ask) -> None:
    """A conversation has the ids that the checkpoint's own Jinja and tokenizer give it."""
    wanted = _own_ids(subject, ask)
    found = list(collapse(subject.prepared(ask), subject.adapter))
    tokenizer = subject.checkpoint.tokenizer
    bos = tokenizer.token_id(dict(template_tokens(subject.checkpoint)).get("bos_token", ""))
    begins = subject.checkpoint.json("tokenizer_config.json").get("add_bos_token", False)
    assert not begins or found[:1] == [bos], "the tokenizer begins every text with BOS, the prompt does not"
    if found[:1] != wanted[:1] and found[:1] == [bos]:
        found = found[1:]  # a tokenizer's own first token, which no template writes
    assert found == wanted, (
        f"the prompt is {tokenizer.decode(found, skip_special_tokens=False)!r}, "
        f"the template says {tokenizer.decode(wanted, skip_special_tokens=False)!r}"
    )


def _own_ids(subject: Subject, ask: Ask) -> list[int]:
    tokenizer = subject.checkpoint.text("tokenizer.json")
    assert tokenizer is not None
    rust = Tokenizer.from_str(tokenizer)
    rust.no_truncation()
    rust.no_padding()
    content: Any = [
        {"type": "text", "text": part} if isinstance(part, str) else {"type": part.info.modality}
        for part in ask.parts
    ]
    if not _takes_parts(subject):
        content = "".join(part for part in ask.parts if isinstance(part, str))
    return list(rust.encode(_rendered(subject, content), add_special_tokens=False).ids)


def _rendered(subject: Subject, content: Any) -> str:
    source = subject.checkpoint.chat_template
    assert source is not None
    names = dict(template_tokens(subject.checkpoint))
    turns = [{"role": "user", "content": content}]
    return compile_template(source).render(messages=turns, add_generation_prompt=True, **names)
