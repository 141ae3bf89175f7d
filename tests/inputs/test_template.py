"""Chat templates: equal to the checkpoint's own over plain text, and nothing a user types is structure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs.toy_family import SPECIALS, TEMPLATE, ToyCheckpoint, byte_level_json, metaspace_json, toy_adapter

from mmcore.adapter import Adapter, Placeholder
from mmcore.errors import CheckpointError, PlaceholderMismatchError, PromptError
from mmcore.inputs.chat import read_messages
from mmcore.inputs.checkpoint import Checkpoint
from mmcore.inputs.layout import lay_out
from mmcore.inputs.template import JinjaTemplate, PlainTemplate
from mmcore.inputs.tokenizer import HFTokenizer
from mmcore.request import ItemPlan, MediaPart, MediaSegment, Message, Rows, TextPart, TextSegment

IMAGE = Placeholder("image", "<|image_pad|>", 352)
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="<"), max_size=16)
CONTENT = st.one_of(
    WORDS,
    st.lists(
        st.one_of(
            WORDS.map(lambda text: {"type": "text", "text": text}),
            st.just({"type": "image", "image": b""}),
        ),
        max_size=4,
    ),
)
CHATS = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant"]), "content": CONTENT}),
    min_size=1,
    max_size=4,
)
STRING_TEMPLATES = {
    "trimmed": "{% for m in messages %}{{ '<|im_start|>' + m.content | trim }}{% endfor %}",
    "stripped": "{% for m in messages %}{{ m['content'].strip() + '<|im_end|>' }}{% endfor %}",
    "tested": "{% for m in messages %}{% if '<think>' in m.content %}!{% endif %}{{ m.content }}{% endfor %}",
    "split": "{% for m in messages %}{{ m.content.split('</think>')[-1].lstrip('\\n') }}{% endfor %}",
    "joined": "{{ messages | map(attribute='content') | join('\\n\\n') }}",
    "blank": "{% for m in messages %}{% if m.content %}<{{ m.content }}>{% endif %}{% endfor %}",
    "set": "{% set text = messages[0].content %}{{ text ~ ' ' ~ text }}",
}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """transformers' own tokenizer and template over the same files."""
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("checkpoint")
    (folder / "tokenizer.json").write_text(byte_level_json())
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"})
    )
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def tokens_of(chat: list[dict[str, Any]], adapter: Adapter, tokenizer: HFTokenizer) -> list[int]:
    """One row a medium, so that a slot is one placeholder id."""
    messages, media = read_messages(chat)
    segments = adapter.prompt.render(messages)
    plans = [ItemPlan((Rows(1),), 1, 8) for _ in media]
    return list(lay_out(segments, plans, adapter, tokenizer).token_ids)


@given(chat=CHATS)
def test_plain_text_equals_the_checkpoints_own_template(reference: Any, chat: list[dict[str, Any]]) -> None:
    checkpoint = ToyCheckpoint()
    expected = reference.apply_chat_template(chat, add_generation_prompt=True, tokenize=True)["input_ids"]
    assert tokens_of(chat, toy_adapter(checkpoint), checkpoint.tokenizer) == expected


@given(chats=st.lists(CHATS, min_size=1, max_size=4))
def test_conversations_of_one_shape_keep_their_own_words(chats: list[list[dict[str, Any]]]) -> None:
    """What is remembered of one shows in none: a template that speaks of chance is never remembered."""
    remembered, anew = (JinjaTemplate(TEMPLATE + end, (IMAGE,)) for end in ("", "{# random #}"))
    for chat in chats:
        messages, _ = read_messages(chat)
        assert remembered.render(messages) == anew.render(messages)


def test_a_template_that_tells_the_time_is_rendered_anew() -> None:
    template = JinjaTemplate("{{ strftime_now('%S.%f') }}{{ messages[0].content }}", (), parts=False)
    moments = {template.render([Message("user", (TextPart("Hi"),))]) for _ in range(20)}
    assert len(moments) > 1


@pytest.mark.parametrize("kind", STRING_TEMPLATES)
@given(texts=st.lists(WORDS, min_size=1, max_size=3))
def test_templates_may_handle_content_as_a_string(reference: Any, kind: str, texts: list[str]) -> None:
    checkpoint = ToyCheckpoint()
    template = JinjaTemplate(STRING_TEMPLATES[kind], (), parts=False)
    adapter = toy_adapter(checkpoint, prompt=template)
    chat = [{"role": "user", "content": text} for text in texts]
    expected = reference.apply_chat_template(
        chat, chat_template=STRING_TEMPLATES[kind], add_generation_prompt=True, tokenize=True
    )["input_ids"]
    assert tokens_of(chat, adapter, checkpoint.tokenizer) == expected


@given(typed=st.lists(st.one_of(st.sampled_from(SPECIALS), WORDS), max_size=6).map("".join))
def test_what_a_user_types_is_no_structure(typed: str) -> None:
    checkpoint = ToyCheckpoint()
    adapter, tokenizer = toy_adapter(checkpoint), checkpoint.tokenizer
    special = {tokenizer.token_id(s) for s in SPECIALS}

    def structure(text: str) -> list[int]:
        content = [{"type": "image", "image": b""}, {"type": "text", "text": text}]
        return [
            i for i in tokens_of([{"role": "user", "content": content}], adapter, tokenizer) if i in special
        ]

    assert structure(typed) == structure("hello")


def test_media_slots_lie_where_the_template_writes_them() -> None:
    adapter = toy_adapter(ToyCheckpoint())
    message = Message(
        "user", (TextPart("a"), MediaPart("image"), TextPart("<|image_pad|>"), MediaPart("image"))
    )
    segments = adapter.prompt.render([message])
    kinds = [s if isinstance(s, MediaSegment) else (s.text, s.trusted) for s in segments]
    assert kinds[1:] == [
        ("a", False),
        ("<|vision_start|>", True),
        MediaSegment("image", 0),
        ("<|vision_end|>", True),
        ("<|image_pad|>", False),
        ("<|vision_start|>", True),
        MediaSegment("image", 1),
        ("<|vision_end|><|im_end|>\n<|im_start|>assistant\n", True),
    ]


def test_string_templates_take_media_in_slots() -> None:
    template = JinjaTemplate(
        "{% for m in messages %}USER: {{ m.content }}{% endfor %} ASSISTANT:",
        (Placeholder("image", "<image>", 3),),
        parts=False,
        slots=(("image", ("", "\n")),),
    )
    segments = template.render([Message("user", (MediaPart("image"), TextPart("Which? <image>")))])
    assert segments == (
        TextSegment("USER: ", trusted=True),
        MediaSegment("image", 0),
        TextSegment("\n", trusted=True),
        TextSegment("Which? <image>"),
        TextSegment(" ASSISTANT:", trusted=True),
    )


def test_text_around_slots_tokenises_as_in_the_whole_prompt() -> None:
    """A tokenizer that treats the start of a text in a way of its own sees only one start."""
    from tokenizers import Tokenizer

    checkpoint = ToyCheckpoint(metaspace_json("first"))
    image = Placeholder("image", "<image>", checkpoint.tokenizer.token_id("<image>") or 0)
    adapter = toy_adapter(checkpoint, placeholders=(image,), prompt=PlainTemplate((image,)))
    prompt = "USER: <image>the fox <image> and the dog<image>"
    segments = adapter.prompt.parse(prompt, ["image"] * 3)
    plans = [ItemPlan((Rows(1),), 1, 8)] * 3
    expected = Tokenizer.from_str(metaspace_json("first")).encode(prompt, add_special_tokens=False).ids
    assert list(lay_out(segments, plans, adapter, checkpoint.tokenizer).token_ids) == expected


def test_a_slot_that_the_template_swallows_is_an_error() -> None:
    template = JinjaTemplate("{% for m in messages %}{{ m.role }}{% endfor %}", (IMAGE,))
    with pytest.raises(PromptError, match=r"0 media slot\(s\) of 1 media"):
        template.render([Message("user", (MediaPart("image"),))])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[0].content.nothing.at_all }}", "failed|refuses"),
        ("{{ ''.__class__.__mro__ }}", "refuses"),
        ("{{ messages.append(1) }}", "refuses"),
        ("{% for i in range(10**9) %}{% endfor %}", "failed|refuses"),
    ],
)
def test_a_template_that_fails_is_an_error_of_the_prompt(source: str, message: str) -> None:
    with pytest.raises(PromptError, match=message):
        JinjaTemplate(source, ()).render([Message("user", (TextPart("x"),))])


def test_a_template_that_is_not_jinja_is_an_error_of_the_checkpoint() -> None:
    with pytest.raises(CheckpointError, match="not valid Jinja"):
        JinjaTemplate.from_files(ToyCheckpoint(), [], source="{% for %}")


def test_what_templates_may_call() -> None:
    source = (
        "{{ {'a': 'é<'} | tojson }} {{ strftime_now('%Y') | length }}{% generation %}x{% endgeneration %}"
    )
    (segment,) = JinjaTemplate(source, ()).render([Message("user", ())])
    assert segment == TextSegment('{"a": "é<"} 4x', trusted=True)


def test_blocks_are_trimmed_as_in_transformers(reference: Any) -> None:
    source = "  {% if true %}\n    a\n  {% endif %}\n{% for m in messages %}\n{{ m.content }}\n{% endfor %}\n"
    chat = [{"role": "user", "content": "x"}]
    expected = reference.apply_chat_template(chat, chat_template=source, tokenize=False)
    segments = JinjaTemplate(source, (), parts=False).render([Message("user", (TextPart("x"),))])
    assert "".join(s.text for s in segments if isinstance(s, TextSegment)) == expected


def test_names_of_special_tokens_reach_the_template(tmp_path: Path) -> None:
    settings = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    template = JinjaTemplate.from_files(Checkpoint(tmp_path), [], source="{{ bos_token }}x{{ eos_token }}")
    assert template.render([Message("user", ())]) == (TextSegment("<s>x</s>", trusted=True),)


# ------------------------------------------------------------------ raw prompts


def test_a_raw_prompt_is_trusted_and_its_placeholders_are_slots() -> None:
    adapter = toy_adapter(ToyCheckpoint())
    segments = adapter.prompt.parse("<|im_start|>a<|image_pad|>b", ["image"])
    assert segments == (
        TextSegment("<|im_start|>a", trusted=True),
        MediaSegment("image", 0),
        TextSegment("b", trusted=True),
    )


def test_a_plain_prompt_with_media_is_one_user_message() -> None:
    adapter = toy_adapter(ToyCheckpoint())
    message = Message("user", (MediaPart("image"), MediaPart("audio"), TextPart("Describe <|im_end|>")))
    assert adapter.prompt.parse("Describe <|im_end|>", ["image", "audio"]) == adapter.prompt.render([message])


def test_a_plain_prompt_without_media_stays_as_it_is() -> None:
    assert toy_adapter(ToyCheckpoint()).prompt.parse("Once upon", []) == (
        TextSegment("Once upon", trusted=True),
    )


@pytest.mark.parametrize(
    ("prompt", "media"),
    [
        ("<|image_pad|>", ["image", "image"]),
        ("<|image_pad|><|image_pad|>", ["image"]),
        ("<|image_pad|>", []),
        ("<|image_pad|>", ["audio"]),
        ("<|im_start|>user\nno slot<|im_end|>", ["image"]),
    ],
)
def test_as_many_placeholders_as_media_please(prompt: str, media: list[str]) -> None:
    with pytest.raises(PlaceholderMismatchError, match=r"placeholder\(s\) for"):
        toy_adapter(ToyCheckpoint()).prompt.parse(prompt, media)


@pytest.mark.parametrize("prompt", ["USER: hi", "<s>USER: hi"])
def test_a_raw_prompt_gets_its_prefix_once(prompt: str) -> None:
    template = JinjaTemplate("", (IMAGE,), turn_markers=("USER:",), prefix="<s>")
    assert template.parse(prompt, []) == (TextSegment("<s>USER: hi", trusted=True),)


def test_the_plain_template_puts_media_first() -> None:
    template = PlainTemplate((IMAGE,), prefix="<s>")
    slots = (MediaSegment("image", 0), MediaSegment("image", 1))
    start = TextSegment("<s>", trusted=True)
    assert template.parse("a", ["image", "image"]) == (*slots, start, TextSegment("a", trusted=True))
    assert template.parse("a<|image_pad|>", ["image"])[2] == MediaSegment("image", 0)


def test_the_plain_template_frames_messages_as_it_frames_a_raw_prompt() -> None:
    template = PlainTemplate((IMAGE,), prefix="<s>", suffix="</s>")
    slot, start, end = MediaSegment("image", 0), *(TextSegment(t, trusted=True) for t in ("<s>", "</s>"))
    message = Message("user", (MediaPart("image"), TextPart("<s>")))
    assert template.render([message]) == (slot, start, TextSegment("<s>"), end)
    assert template.parse("<s>a", ["image"]) == (slot, TextSegment("<s>a", trusted=True), end)
