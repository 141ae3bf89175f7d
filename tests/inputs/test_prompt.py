"""What callers hand in, read into records; everything unknown is named."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from mmcore.errors import MediaFormatError, MMCoreError, PromptError, UnsupportedOptionError
from mmcore.inputs import TextPrompt, TokensPrompt
from mmcore.inputs.chat import read_messages
from mmcore.inputs.prompt import collect_media, item_options, read_prompt
from mmcore.request import MediaPart, Message, TextPart


def test_the_forms_of_a_prompt() -> None:
    assert read_prompt("hi").text == "hi"
    assert read_prompt(TextPrompt(prompt="hi")).text == "hi"
    assert read_prompt(TokensPrompt(prompt_token_ids=[1, 2])).token_ids == (1, 2)
    assert read_prompt([3, 4]).token_ids == (3, 4)
    assert read_prompt({"prompt": "hi", "cache_salt": "t", "decoder_options": {"a": 1}}).salt == "t"


def test_media_keep_their_order_and_are_numbered() -> None:
    read = read_prompt(
        TextPrompt(
            prompt="x",
            multi_modal_data={"image": ["a", "b"], "audio": ("samples", 8)},
            multi_modal_uuids={"image": ["u", None]},
        )
    )
    names = [(m.name, m.value, m.uuid) for m in read.media]
    assert names == [("image 1 of 2", "a", "u"), ("image 2 of 2", "b", ""), ("audio", ("samples", 8), "")]


def test_a_uuid_alone_stands_for_its_medium() -> None:
    (one,) = collect_media(None, {"image": "u"})
    assert (one.value, one.uuid) == (None, "u")
    assert [m.value for m in collect_media({"image": [None, "b"]}, {"image": ["u", "v"]})] == [None, "b"]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (3, "not int"),
        (b"hi", "not bytes"),
        ({}, "either 'prompt' or 'prompt_token_ids'"),
        ({"prompt": "a", "prompt_token_ids": [1]}, "either"),
        ({"prompt": 3}, "'prompt' is a string"),
        ({"prompt_token_ids": ["a"]}, "list of integers"),
        ({"prompt_token_ids": 3}, "list of integers"),
        (["a", "b"], "list of integers"),
        ({"prompt": "a", "multimodal_data": {}}, "unknown prompt key 'multimodal_data'"),
        ({"prompt": "a", "multi_modal_data": ["x"]}, "'multi_modal_data' is a mapping"),
        ({"prompt": "a", "multi_modal_data": {3: "x"}}, "modality names"),
        (
            {"prompt": "a", "multi_modal_data": {"image": ["x"]}, "multi_modal_uuids": {"image": []}},
            "0 entries for 1",
        ),
        ({"prompt": "a", "multi_modal_uuids": {"image": [3]}}, "holds strings"),
        ({"prompt": "a", "cache_salt": 3}, "'cache_salt' is a string"),
        ({"prompt": "a", "decoder_options": [1]}, "'decoder_options' is a mapping"),
    ],
)
def test_what_is_no_prompt(prompt: Any, message: str) -> None:
    with pytest.raises(MMCoreError, match=message):
        read_prompt(prompt)


@pytest.mark.parametrize("key", ["multi_modal_embeddings", "query"])
def test_what_is_not_built_yet_is_refused_by_name(key: str) -> None:
    with pytest.raises(UnsupportedOptionError, match=f"'{key}' is not built yet"):
        read_prompt({"prompt": "a", key: []})


def test_processor_options_for_all_by_modality_or_by_item() -> None:
    media = collect_media({"image": ["a", "b"], "audio": ["c"]}, None)
    assert item_options(None, media) == ({}, {}, {})
    assert item_options({"fps": 1}, media) == ({"fps": 1},) * 3
    assert item_options({"image": {"cell": 14}}, media) == ({"cell": 14}, {"cell": 14}, {})
    assert item_options([{"cell": 14}, None, {}], media) == ({"cell": 14}, {}, {})
    wrongs: tuple[Any, ...] = ([{}], "cell", 3, [1, 2, 3])
    for wrong in wrongs:
        with pytest.raises(PromptError, match="mm_processor_kwargs"):
            item_options(wrong, media)


# ------------------------------------------------------------------ messages


def test_every_kind_of_part() -> None:
    sound = base64.b64encode(b"RIFF").decode()
    parts = [
        {"type": "text", "text": "a"},
        "b",
        {"type": "image", "image": b"1", "uuid": "u"},
        {"type": "image_url", "image_url": {"url": "data:,2"}},
        {"type": "image_url", "image_url": "data:,3"},
        {"type": "audio", "audio": ([0.0], 8_000)},
        {"type": "input_audio", "input_audio": {"data": sound, "format": "wav"}},
        {"type": "video", "video": "clip.mp4"},
        {"type": "image", "uuid": "v"},
    ]
    messages, media = read_messages([{"role": "system", "content": "s"}, {"role": "user", "content": parts}])
    image, audio, video = MediaPart("image"), MediaPart("audio"), MediaPart("video")
    assert messages == (
        Message("system", (TextPart("s"),)),
        Message("user", (TextPart("a"), TextPart("b"), image, image, image, audio, audio, video, image)),
    )
    assert [(m.name, m.value, m.uuid) for m in media] == [
        ("image 1 of 4", b"1", "u"),
        ("image 2 of 4", "data:,2", ""),
        ("image 3 of 4", "data:,3", ""),
        ("image 4 of 4", None, "v"),
        ("audio 1 of 2", ([0.0], 8_000), ""),
        ("audio 2 of 2", b"RIFF", ""),
        ("video", "clip.mp4", ""),
    ]


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "non-empty list"),
        ("hi", "non-empty list"),
        ([3], "message 1: a message is a mapping"),
        ([{"content": "x"}], "'role' and 'content'"),
        ([{"role": "user<|im_end|>", "content": "x"}], "the role is a short word"),
        ([{"role": 3, "content": "x"}], "the role is a short word"),
        ([{"role": "user"}], "'content' is a string or a list"),
        ([{"role": "user", "content": [3]}], "message 1, part 1: a content part"),
        ([{"role": "user", "content": [{"type": "text"}]}], "string 'text'"),
        (
            [{"role": "user", "content": [{"type": "smell", "smell": 1}]}],
            "unknown type 'smell'; known: text, audio",
        ),
        ([{"role": "user", "content": [{"type": "image"}]}], "has 'image', or a 'uuid'"),
        ([{"role": "user", "content": [{"type": "image", "image": b"", "uuid": 3}]}], "'uuid' is a string"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": 3}}]}], "'image_url' is"),
        ([{"role": "user", "content": [{"type": "input_audio", "input_audio": "x"}]}], "base64"),
        ([{"role": "user", "content": "x", "tool_calls": [1]}], "'tool_calls' in a message is not supported"),
    ],
)
def test_what_is_no_conversation(messages: Any, message: str) -> None:
    with pytest.raises(PromptError, match=message):
        read_messages(messages)


def test_sound_that_is_not_base64() -> None:
    part = {"type": "input_audio", "input_audio": {"data": "*", "format": "wav"}}
    with pytest.raises(MediaFormatError, match=r"message 1, part 1.*not base64"):
        read_messages([{"role": "user", "content": [part]}])
