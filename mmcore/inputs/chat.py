"""Chat messages, as OpenAI and TensorRT-LLM write them, to `Message` records and their media."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mmcore.errors import MediaFormatError, PromptError
from mmcore.inputs.prompt import MediaInput, number_media
from mmcore.request import MediaPart, Message, Modality, TextPart

_ROLE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
_Given = tuple[Modality, Any, str]


def read_messages(messages: Any) -> tuple[tuple[Message, ...], tuple[MediaInput, ...]]:
    """Messages and their media: by modality, in message order. Raises `PromptError` naming the part."""
    if isinstance(messages, Mapping):
        messages = [messages]
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes) or not messages:
        raise PromptError("messages is a non-empty list of {'role': ..., 'content': ...}")
    given: list[_Given] = []
    read = tuple(_message(number, message, given) for number, message in enumerate(messages, start=1))
    media: list[MediaInput] = []
    for modality in dict.fromkeys(entry[0] for entry in given):
        media += number_media(modality, [(value, uuid) for m, value, uuid in given if m == modality])
    return read, tuple(media)


def _message(number: int, message: Any, given: list[_Given]) -> Message:
    where = f"message {number}"
    if isinstance(message, Message):
        raise PromptError(f"{where}: give a mapping with 'role' and 'content', not a Message record")
    if not isinstance(message, Mapping) or "role" not in message:
        raise PromptError(f"{where}: a message is a mapping with 'role' and 'content'")
    role, content = message["role"], message.get("content")
    # A role is put into the template as it is, so it must not carry special tokens.
    if not isinstance(role, str) or not _ROLE.fullmatch(role):
        raise PromptError(f"{where}: the role is a short word such as 'user', got {str(role)[:40]!r}")
    for key in message.keys() - {"role", "content", "name"}:
        if message[key]:
            raise PromptError(f"{where}: {str(key)[:40]!r} in a message is not supported")
    if isinstance(content, str):
        return Message(role, (TextPart(content),))
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        raise PromptError(f"{where}: 'content' is a string or a list of parts")
    return Message(role, tuple(_part(f"{where}, part {n}", p, given) for n, p in enumerate(content, start=1)))


def _part(where: str, part: Any, given: list[_Given]) -> TextPart | MediaPart:
    if isinstance(part, str):
        return TextPart(part)
    if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
        raise PromptError(f"{where}: a content part is a mapping with a 'type'")
    kind = part["type"]
    if kind in ("text", "input_text"):
        if not isinstance(part.get("text"), str):
            raise PromptError(f"{where}: a text part has a string 'text'")
        return TextPart(part["text"])
    if kind not in _MEDIA_PARTS:
        raise PromptError(
            f"{where}: unknown type {kind[:40]!r}; known: text, {', '.join(sorted(_MEDIA_PARTS))}"
        )
    modality, read = _MEDIA_PARTS[kind]
    uuid = part.get("uuid") or ""
    if not isinstance(uuid, str):
        raise PromptError(f"{where}: 'uuid' is a string")
    value = read(where, kind, part)
    if value is None and not uuid:
        raise PromptError(f"{where}: a part of type {kind!r} has {kind!r}, or a 'uuid' sent before")
    given.append((modality, value, uuid))
    return MediaPart(modality)


def _plain(where: str, kind: str, part: Mapping[str, Any]) -> Any:
    return part.get(kind, part.get("url", part.get("path")))


def _url(where: str, kind: str, part: Mapping[str, Any]) -> Any:
    value = part.get(kind)
    if isinstance(value, Mapping):
        value = value.get("url")
    if value is not None and not isinstance(value, str):
        raise PromptError(f"{where}: {kind!r} is {{'url': '...'}}")
    return value


def _input_audio(where: str, kind: str, part: Mapping[str, Any]) -> Any:
    value = part.get(kind)
    if value is None:
        return None
    if not isinstance(value, Mapping) or not isinstance(value.get("data"), str):
        raise PromptError(f"{where}: 'input_audio' is {{'data': base64, 'format': 'wav'}}")
    try:
        return base64.b64decode(value["data"], validate=True)
    except (binascii.Error, ValueError):
        raise MediaFormatError(f"{where}: the data of 'input_audio' is not base64") from None


_Reader = Callable[[str, str, Mapping[str, Any]], Any]
_MEDIA_PARTS: Mapping[str, tuple[Modality, _Reader]] = {
    "image": ("image", _plain),
    "audio": ("audio", _plain),
    "video": ("video", _plain),
    "image_url": ("image", _url),
    "audio_url": ("audio", _url),
    "video_url": ("video", _url),
    "input_audio": ("audio", _input_audio),
}
