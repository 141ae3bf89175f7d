"""What callers hand in: text or token prompts with media, read into one record."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Required, TypedDict

from mmcore.errors import PromptError, UnknownModalityError, UnsupportedOptionError
from mmcore.inputs.clip import is_frames
from mmcore.request import Message, Modality

NOT_BUILT_YET = ("multi_modal_embeddings", "query", "query_token_ids", "encoder_inputs")


class MediaFields(TypedDict, total=False):
    """What both kinds of prompt may carry beside their text or ids."""

    multi_modal_data: Mapping[Modality, Any]
    """By modality, one medium or a list of them: PIL image, path, URL, bytes, array, (samples, rate).
    A video may also be frames, uint8 [frames, height, width, 3] or a list of PIL images, or (frames, fps)."""
    multi_modal_uuids: Mapping[Modality, Any]
    """By modality, the caller's own names of the media. A medium given as None is looked up by its name."""
    mm_processor_kwargs: Mapping[str, Any] | Sequence[Mapping[str, Any] | None]
    """Options of the input processor: for the whole request, by modality, or a list with one per item."""
    decoder_options: Mapping[str, Any]
    """Options of a cross-attention family's decoder prefix (language, task): see `Decoding.prefix`."""
    cache_salt: str
    """Nothing cached under another salt is ever reused."""


class TextPrompt(MediaFields, total=False):
    """A raw prompt. Its special tokens are active; see `PromptTemplate.parse` for where media go."""

    prompt: Required[str]


class TokensPrompt(MediaFields, total=False):
    """A prompt as token ids, with one placeholder id a medium, or as many as its rows."""

    prompt_token_ids: Required[Sequence[int]]


Prompt = str | TextPrompt | TokensPrompt | Mapping[str, Any] | Sequence[int]
"""What `LLM.generate` takes for one prompt; a plain list holds token ids."""
ChatMessage = Mapping[str, Any]
"""``{"role": ..., "content": text or parts}``, as OpenAI and TensorRT-LLM write it."""


@dataclass(frozen=True, eq=False, slots=True)
class MediaInput:
    """One medium as the caller gave it; ``value`` None means: known by its UUID alone."""

    modality: Modality
    value: Any
    uuid: str = ""
    number: int = 1
    total: int = 1

    @property
    def name(self) -> str:
        """How errors call it: ``image 2 of 3``."""
        return self.modality if self.total == 1 else f"{self.modality} {self.number} of {self.total}"


@dataclass(frozen=True, eq=False, slots=True)
class ReadPrompt:
    """A prompt, read. Exactly one of ``text``, ``token_ids``, ``messages`` is given."""

    text: str | None = None
    token_ids: tuple[int, ...] | None = None
    messages: tuple[Message, ...] | None = None
    media: tuple[MediaInput, ...] = ()
    options: Any = None
    decoder_options: Mapping[str, Any] = field(default_factory=dict)
    salt: str = ""


def read_prompt(prompt: Prompt) -> ReadPrompt:
    """Raises `PromptError`, `UnsupportedOptionError`."""
    if isinstance(prompt, str):
        return ReadPrompt(text=prompt)
    if isinstance(prompt, Sequence) and not isinstance(prompt, bytes):
        return ReadPrompt(token_ids=_ids(prompt))
    if not isinstance(prompt, Mapping):
        raise PromptError(
            f"a prompt is a string, a TextPrompt, a TokensPrompt or a list of token ids, "
            f"not {type(prompt).__name__}"
        )
    _check_keys(prompt)
    text, ids = prompt.get("prompt"), prompt.get("prompt_token_ids")
    if (text is None) == (ids is None):
        raise PromptError("a prompt has either 'prompt' or 'prompt_token_ids'")
    if text is not None and not isinstance(text, str):
        raise PromptError(f"'prompt' is a string, not {type(text).__name__}")
    return ReadPrompt(
        text=text,
        token_ids=None if ids is None else _ids(ids),
        media=collect_media(prompt.get("multi_modal_data"), prompt.get("multi_modal_uuids")),
        options=prompt.get("mm_processor_kwargs"),
        decoder_options=_mapping("decoder_options", prompt.get("decoder_options")),
        salt=_salt(prompt.get("cache_salt")),
    )


def collect_media(data: Any, uuids: Any) -> tuple[MediaInput, ...]:
    """Media and their UUIDs, modality by modality in the caller's order, numbered within each."""
    given = {k: v for k, v in _mapping("multi_modal_data", data).items() if v is not None}
    by_modality = {key: _values(key, value) for key, value in given.items()}
    named = {key: _uuids(key, value) for key, value in _mapping("multi_modal_uuids", uuids).items()}
    for modality in _mapping("multi_modal_data", data).keys() - given.keys() - named.keys():
        raise PromptError(
            f"multi_modal_data[{modality!r}] is None; give the media, a UUID, or leave the key out"
        )
    for modality, names in named.items():
        values = by_modality.setdefault(modality, [None] * len(names))
        if len(values) != len(names):
            raise PromptError(
                f"multi_modal_uuids[{modality!r}] has {len(names)} entries for {len(values)} media"
            )
    media: list[MediaInput] = []
    for modality, values in by_modality.items():
        media += number_media(modality, zip(values, named.get(modality, [""] * len(values)), strict=True))
    return tuple(media)


def number_media(modality: Modality, pairs: Iterable[tuple[Any, str]]) -> list[MediaInput]:
    pairs = list(pairs)
    return [
        MediaInput(modality, value, uuid, number, len(pairs))
        for number, (value, uuid) in enumerate(pairs, start=1)
    ]


def item_options(options: Any, media: Sequence[MediaInput]) -> tuple[Mapping[str, Any], ...]:
    """``mm_processor_kwargs`` for each item: of the whole request, by modality, or listed."""
    if options is None:
        return tuple({} for _ in media)
    if isinstance(options, Mapping):
        modalities = {item.modality for item in media}
        if options and all(isinstance(v, Mapping) for v in options.values()) and set(options) <= modalities:
            return tuple(options.get(item.modality, {}) for item in media)
        return tuple(options for _ in media)
    if not isinstance(options, Sequence) or isinstance(options, str | bytes):
        raise PromptError("mm_processor_kwargs is a mapping of options, or a list with one mapping an item")
    if len(options) != len(media):
        raise PromptError(f"mm_processor_kwargs lists {len(options)} entries for {len(media)} media")
    return tuple(_mapping("mm_processor_kwargs", entry) for entry in options)


def _check_keys(prompt: Mapping[str, Any]) -> None:
    known = TextPrompt.__annotations__.keys() | TokensPrompt.__annotations__.keys()
    for key in prompt:
        if key in NOT_BUILT_YET:
            raise UnsupportedOptionError(f"prompt key {key!r} is not built yet; leave it out")
        if key not in known:
            raise PromptError(f"unknown prompt key {key!r}; known: {', '.join(sorted(known))}")


def _values(modality: str, value: Any) -> list[Any]:
    if not isinstance(modality, str):
        raise UnknownModalityError("the keys of multi_modal_data are modality names such as 'image'")
    several = isinstance(value, list) and not (modality == "video" and is_frames(value))
    return list(value) if several else [value]


def _uuids(modality: str, value: Any) -> list[str]:
    names = value if isinstance(value, list | tuple) else [value]
    if not all(name is None or isinstance(name, str) for name in names):
        raise PromptError(f"multi_modal_uuids[{modality!r}] holds strings (None where there is none)")
    return [name or "" for name in names]


def _ids(ids: Any) -> tuple[int, ...]:
    try:
        return tuple(operator.index(i) for i in ids)
    except TypeError:
        raise PromptError("'prompt_token_ids' is a list of integers") from None


def _salt(salt: Any) -> str:
    if salt is not None and not isinstance(salt, str):
        raise PromptError(f"'cache_salt' is a string, not {type(salt).__name__}")
    return salt or ""


def _mapping(key: str, value: Any) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise PromptError(f"{key!r} is a mapping, not {type(value).__name__}")
    return value or {}
