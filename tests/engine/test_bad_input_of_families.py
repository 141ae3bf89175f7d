"""What no family takes, and what each one's limits refuse: every family's tiny checkpoint, one batch each.

Bad requests fail alone, by a typed error that says what and names the limit; their neighbours answer as
always.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine.bad_batch import PARAMS, SMALL, check_clean, check_text, hum, noise
from engine.tiny_families import FAMILIES
from inputs.bad_media import PICTURE_FILES, PICTURES_IN_MEMORY, SOUND_FILES, SOUNDS_IN_MEMORY
from inputs.media_files import encoded

from mmcore import LLM, KvCacheConfig
from mmcore.adapter import Adapter, Fusion, MediaLimits
from mmcore.errors import (
    ContextLengthError,
    MediaFormatError,
    MediaLimitError,
    MMCoreError,
    PlaceholderMismatchError,
    PromptError,
    RequestTooLargeError,
    UnknownModalityError,
    UnsupportedOptionError,
)

GOOD: Mapping[str, Callable[[int], Any]] = {
    "image": lambda seed: noise(seed, 60, 70),
    "video": lambda seed: np.stack([np.asarray(noise(seed + n, 40, 30)) for n in range(3)]),
    "audio": lambda seed: (hum(seed), 16_000),
}
Bad = tuple[Any, type[MMCoreError], str]
"""A prompt, its error and the error's words."""


@dataclass(frozen=True, repr=False)
class Subject:
    """One family's engine, and two of its prompts with their answers."""

    name: str
    folder: Path
    llm: LLM
    alone: tuple[tuple[int, ...], ...]

    def __repr__(self) -> str:
        return self.name

    @property
    def adapter(self) -> Adapter:
        return self.llm._engine._adapter

    @property
    def is_answered_alone(self) -> bool:
        """It answers about a medium and nothing else; its prompt is no user's words."""
        return self.adapter.fusion is Fusion.CROSS_ATTENTION and self.adapter.context is None

    def prompt(self, modality: str, *media: Any, text: str = "What?", **more: Any) -> dict[str, Any]:
        words = "" if self.is_answered_alone else text
        return {"prompt": words, "multi_modal_data": {modality: list(media)}, **more}

    def good(self, seed: int, **more: Any) -> dict[str, Any]:
        modality = self.adapter.inputs.modalities[0]
        return self.prompt(modality, GOOD[modality](seed), **more)


@pytest.fixture(scope="module", params=FAMILIES)
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    folder = FAMILIES[request.param](tmp_path_factory.mktemp("family"))
    with LLM(folder, device="cpu", seed=0, kv_cache_config=SMALL) as llm:
        first = Subject(request.param, folder, llm, ())
        alone = tuple(llm.generate(first.good(seed), PARAMS).token_ids for seed in (1, 2))
        yield Subject(request.param, folder, llm, alone)
        check_clean(llm)


def expect(subject: Subject, cases: Mapping[str, Bad]) -> None:
    """All in one batch, good prompts before, between and after them."""
    bad = list(cases.items())
    middle, salt = len(bad) // 2, f"beside {len(bad)} {next(iter(cases))}"
    good = [subject.good(seed, cache_salt=salt) for seed in (1, 2)]
    prompts = [prompt for _, (prompt, _, _) in bad]
    outputs = subject.llm.generate([good[0], *prompts[:middle], good[1], *prompts[middle:], good[0]], PARAMS)
    answers = [outputs[0], outputs[middle + 1], outputs[-1]]
    for output, alone in zip(answers, (*subject.alone, subject.alone[0]), strict=True):
        assert (output.error, output.token_ids) == (None, alone)
    failed = [*outputs[1 : middle + 1], *outputs[middle + 2 : -1]]
    for (name, (_, error, words)), output in zip(bad, failed, strict=True):
        assert type(output.error) is error, f"{name}: {output.error!r}"
        check_text(output.error, words)
        assert output.finished
    check_clean(subject.llm)


def limits_of(subject: Subject, modality: str) -> MediaLimits:
    return subject.adapter.inputs.limits.get(modality, MediaLimits())


# ------------------------------------------------------------------ media that nobody takes


def bad_media(subject: Subject, modality: str) -> Iterator[tuple[str, Bad]]:
    files = {"image": PICTURE_FILES, "audio": SOUND_FILES}.get(modality, {})
    memory = {"image": PICTURES_IN_MEMORY, "audio": SOUNDS_IN_MEMORY}.get(modality, {})
    given = {name: (data, error, words) for name, (data, error, words) in files.items()}
    given |= {f"{name} in memory": (make(), error, words) for name, (make, error, words) in memory.items()}
    for name, (medium, error, words) in given.items():
        yield name, (subject.prompt(modality, medium), error, f"{modality}.*: .*({words})")
    if modality == "video":
        yield "0 bytes", (subject.prompt("video", b""), MediaFormatError, r"^video: the file is empty")
        picture = encoded(noise(3))
        yield "a picture", (subject.prompt("video", picture), MediaFormatError, "^video: the file is PNG")
        empty = np.zeros((0, 9, 9, 3), np.uint8)
        yield "no frames", (subject.prompt("video", empty), MediaFormatError, "^video: .*is no video")
        sound = (np.zeros(100, np.float32), 16_000)
        yield "sound", (subject.prompt("video", sound), MediaFormatError, "^video: .*is no video")


def test_bad_media_fail_alone(subject: Subject) -> None:
    for modality in subject.adapter.inputs.modalities:
        expect(subject, dict(bad_media(subject, modality)))


def test_what_is_of_another_modality(subject: Subject) -> None:
    taken = subject.adapter.inputs.modalities
    others = {name: make(1) for name, make in GOOD.items() if name not in taken} | {"smell": "rose"}
    words = f"takes {' and '.join(taken)}, not "
    expect(
        subject,
        {
            name: (subject.prompt(name, medium), UnknownModalityError, f"{words}'{name}'")
            for name, medium in others.items()
        },
    )


# ------------------------------------------------------------------ limits


def beyond(subject: Subject, modality: str) -> Iterator[tuple[str, Bad]]:
    """Each limit that the family has, passed by as little as can be."""
    limits = limits_of(subject, modality)
    if limits.max_items:
        ten = subject.prompt(modality, *(GOOD[modality](n) for n in range(10)))
        yield "ten", (ten, MediaLimitError, f"10 media in one prompt are over max_items {limits.max_items}")
    if limits.min_side > 1:
        small = noise(1, 10 * limits.min_side, limits.min_side - 1)
        yield "small", (subject.prompt(modality, small), MediaLimitError, f"under min_side {limits.min_side}")
    if limits.max_aspect and modality == "image":
        side = max(1, limits.min_side)
        thin = noise(1, side, int(limits.max_aspect * side) + 1)
        yield "thin", (subject.prompt("image", thin), MediaLimitError, f"max_aspect {limits.max_aspect:g}")


def test_limits_are_named(subject: Subject) -> None:
    for modality in subject.adapter.inputs.modalities:
        cases = dict(beyond(subject, modality))
        options = subject.prompt(modality, GOOD[modality](1), mm_processor_kwargs={"depth": 2})
        expect(subject, {**cases, "an option": (options, UnsupportedOptionError, "'depth'")})


@pytest.mark.parametrize("size", [(1, 10_000), (10_000, 1), (65_535, 1), (3, 2_000)])
def test_a_thin_picture_is_refused_or_stays_small(subject: Subject, size: tuple[int, int]) -> None:
    """A file of some bytes must not become gigabytes: a form that keeps the aspect has a limit."""
    if "image" not in subject.adapter.inputs.modalities:
        return
    prompt = subject.prompt("image", np.broadcast_to(np.uint8(90), (*size, 3)))
    (output,) = subject.llm.generate([prompt], PARAMS)
    if limits_of(subject, "image").max_aspect:
        assert type(output.error) is MediaLimitError
        check_text(output.error, "max_aspect|min_side")
    else:
        assert output.error is None
        shape = getattr(subject.adapter.inputs, "shape", None)
        assert shape is None or not shape.shortest_edge, "such a picture is resized to any length"
    check_clean(subject.llm)


def test_small_and_many_media_are_served(subject: Subject) -> None:
    """Ten pixels, one frame, ten pictures: where no limit forbids them."""
    asked: dict[str, dict[str, Any]] = {}
    for modality in subject.adapter.inputs.modalities:
        limits = limits_of(subject, modality)
        if modality == "image" and limits.min_side <= 1:
            asked |= {f"{side} px": subject.prompt("image", noise(1, side, side)) for side in (1, 10)}
        if modality == "video":
            asked["one frame"] = subject.prompt("video", GOOD["video"](1)[:1])
        if not limits.max_items:
            media = [np.asarray(GOOD[modality](n)) for n in range(10)]
            asked[f"ten of {modality}"] = subject.prompt(modality, *media)
    outputs = subject.llm.generate([subject.good(1), *asked.values()], PARAMS)
    assert outputs[0].token_ids == subject.alone[0]
    for name, output in zip(asked, outputs[1:], strict=True):
        assert output.error is None, f"{name}: {output.error!r}"
        assert len(output.token_ids) == PARAMS.max_tokens


@pytest.mark.parametrize(
    ("room", "words"),
    [
        ({"kv_cache_config": KvCacheConfig(max_tokens=16)}, "raise KvCacheConfig.max_tokens"),
        ({"kv_cache_config": SMALL, "encoder_cache_bytes": 16}, "raise encoder_cache_bytes"),
    ],
)
def test_what_can_never_fit_names_the_setting(subject: Subject, room: dict[str, Any], words: str) -> None:
    """And the next request, which is as large, is told the same: nothing was kept of the first."""
    prompt = subject.good(1, text="a" * 40)
    with LLM(subject.folder, device="cpu", **room) as llm:
        for output in llm.generate([prompt, prompt], PARAMS):
            assert type(output.error) is RequestTooLargeError, repr(output.error)
            check_text(output.error, words)
        check_clean(llm)


# ------------------------------------------------------------------ prompts


def test_bad_prompts(subject: Subject) -> None:
    modality = subject.adapter.inputs.modalities[0]
    medium, placeholder = GOOD[modality](1), subject.adapter.placeholder(modality)
    given = {"multi_modal_data": {modality: [medium]}}
    cases: dict[str, Bad] = {
        "an unknown key": ({"promt": "a", "prompt": "a"}, PromptError, "unknown prompt key 'promt'"),
        "no prompt": ({"multi_modal_data": {}}, PromptError, "either 'prompt' or"),
        "a number": ({"prompt": 3, **given}, PromptError, "'prompt' is a string"),
        "media that are no mapping": (
            {"prompt": "", "multi_modal_data": [medium]},
            PromptError,
            "is a mapping, not list",
        ),
    }
    if placeholder is not None and not subject.is_answered_alone:
        twice = {"prompt": f"{placeholder.text * 2}a", **given}
        cases["two slots for one"] = (twice, PlaceholderMismatchError, f"2 {modality} placeholder.* for 1")
        none = f"{placeholder.text}What?"
        cases["a slot for none"] = (none, PlaceholderMismatchError, f"1 {modality} placeholder.* for 0")
        long = subject.prompt(modality, medium, text="a" * subject.adapter.decoder.max_length)
        cases["too long"] = (long, ContextLengthError, "shorten")
    else:
        cases["no medium"] = ({"prompt": ""}, PlaceholderMismatchError, "brings none|one medium")
    expect(subject, cases)


def test_typed_special_tokens_are_plain_text(subject: Subject) -> None:
    """One byte is one token in these checkpoints: a special token that is typed is as long as its text."""
    if subject.is_answered_alone:
        return
    tokenizer = subject.llm._engine._outputs._tokenizer
    modality = subject.adapter.inputs.modalities[0]

    def ids(text: str) -> tuple[int, ...]:
        content = [{"type": modality, modality: GOOD[modality](1)}, {"type": "text", "text": f"a{text}a"}]
        request = subject.llm._pipeline.prepare_chat([{"role": "user", "content": content}], request_id="r")
        context = () if request.cross is None else request.cross.text_ids
        return context or request.token_ids

    placeholders = [one.text for one in subject.adapter.placeholders]
    for typed in (*placeholders, "<|im_end|>", "</s>", "<|im_start|>system", "<|eot_id|>"):
        plain, found = ids("x" * len(typed)), ids(typed)
        assert len(found) == len(plain), typed
        special = tokenizer.token_id(typed)
        assert special is None or found.count(special) == plain.count(special), typed
