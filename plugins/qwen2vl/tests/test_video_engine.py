"""Videos through the whole engine, from files and from memory, against transformers, greedy.

The reference decodes every frame with plain PyAV, samples them with its own arithmetic, and takes patches and
positions from `VideoReference`.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mmcore_qwen2vl.testing import TOKEN_IDS, write_tiny_checkpoint
from PIL import Image

from mmcore import LLM, KvCacheConfig, RequestOutput, SamplingParams

transformers = pytest.importorskip("transformers")
av = pytest.importorskip("av")

PADS = {TOKEN_IDS["<|image_pad|>"]: "image", TOKEN_IDS["<|video_pad|>"]: "video"}
ANSWER = SamplingParams(max_tokens=8, ignore_eos=True)
FORMS = {"mp4": "mpeg4", "webm": "libvpx"}


@dataclass(frozen=True)
class Film:
    """``kind``: a file's format, ``array`` or ``pictures`` with a rate, or ``frames`` without one."""

    kind: str
    frames: int
    width: int
    height: int
    rate: int

    @property
    def pixels(self) -> list[np.ndarray]:
        """Coloured squares on the move."""
        small = np.random.default_rng([self.frames, self.width]).integers(0, 256, (6, 6, 3), np.uint8)
        whole = small.repeat(-(-self.height // 6), 0).repeat(-(-self.width // 6), 1)
        return [np.roll(whole[: self.height, : self.width], 7 * n, axis=1) for n in range(self.frames)]

    @property
    def given(self) -> Any:
        """As it is handed to mmcore."""
        if self.kind in FORMS:
            return self.file()
        if self.kind == "array":
            return (np.stack(self.pixels), self.rate)
        pictures = [Image.fromarray(frame) for frame in self.pixels]
        return pictures if self.kind == "frames" else (pictures, self.rate)

    def file(self) -> bytes:
        target = io.BytesIO()
        with av.open(target, "w", format=self.kind) as container:
            stream = container.add_stream(FORMS[self.kind], rate=self.rate)
            stream.width, stream.height, stream.pix_fmt, stream.gop_size = (
                self.width,
                self.height,
                "yuv420p",
                4,
            )
            for frame in self.pixels:
                container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
            container.mux(stream.encode())
        return target.getvalue()

    def seen(self) -> list[np.ndarray]:
        """The frames that the model is to see: 2 a second, 4 or more if there are, an even number."""
        frames = self.pixels
        if self.kind in FORMS:
            with av.open(io.BytesIO(self.file())) as container:
                frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        if self.kind == "frames":
            return frames
        count = min(max(2 * self.frames / self.rate, 4), self.frames // 2 * 2)
        count = max(int(count + 1e-6) // 2 * 2, 1)
        return [frames[n * self.frames // count] for n in range(count)]

    def step(self) -> float:
        """Seconds of two frames that the model sees."""
        return 1.0 if self.kind == "frames" else 2 * self.frames / self.rate / len(self.seen())


Part = str | Film | tuple[int, int]
"""Text, a film, or a picture's width and height."""


def picture(size: tuple[int, int]) -> Image.Image:
    return Image.fromarray(Film("array", 1, *size, rate=1).pixels[0])


def messages(parts: list[Part]) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, str):
            content.append({"type": "text", "text": part})
        elif isinstance(part, Film):
            content.append({"type": "video", "video": part.given})
        else:
            content.append({"type": "image", "image": picture(part)})
    return [{"role": "user", "content": content}]


@dataclass(frozen=True)
class Theirs:
    """transformers' own parts over one folder."""

    variant: str
    tokenizer: Any
    processor: Any
    model: Any
    counting: Any

    @torch.inference_mode()
    def next_tokens(self, parts: list[Part], answer: list[int]) -> tuple[list[int], list[int]]:
        """The prompt's ids, and what greedy decoding says where each token of ``answer`` stands."""
        kinds = {str: "text", Film: "video", tuple: "image"}
        turn = [{"type": kinds[type(p)], **({"text": p} if isinstance(p, str) else {})} for p in parts]
        text = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": turn}], add_generation_prompt=True, tokenize=False
        )
        media = iter([self._medium(part) for part in parts if not isinstance(part, str)])
        ids: list[int] = []
        counted: list[Any] = []
        rows: list[torch.Tensor] = []
        for token in self.tokenizer(text).input_ids:
            if token not in PADS:
                counted.append(token)
                ids.append(token)
                continue
            values, (time, height, width), step = next(media)
            found = self.model.model.visual(
                torch.from_numpy(values), grid_thw=torch.tensor([[time, height, width]])
            )
            rows.append(found.pooler_output)
            ids += [token] * len(rows[-1])
            counted.append((time, height // 2, width // 2, step))
        tokens = torch.tensor([ids + answer])
        embedded = self.model.get_input_embeddings()(tokens)
        slots = torch.tensor([token in PADS for token in ids] + [False] * len(answer))
        embedded[0, slots] = torch.cat(rows)
        positions = self.counting.positions([*counted, *answer], self.variant)
        logits = self.model(inputs_embeds=embedded, position_ids=positions[:, None]).logits[0]
        return ids, logits[len(ids) - 1 : -1].argmax(1).tolist()

    def _medium(self, part: Any) -> tuple[np.ndarray, tuple[int, int, int], float]:
        if isinstance(part, Film):
            return *self.counting.weave(self.processor, part.seen()), part.step()
        arrays = self.processor(picture(part), return_tensors="np")
        time, height, width = arrays["image_grid_thw"][0].tolist()
        return arrays["pixel_values"], (time, height, width), 0.0


@pytest.fixture(scope="module", params=["2", "2.5"])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, reference: Any
) -> Iterator[tuple[LLM, Theirs]]:
    folder = write_tiny_checkpoint(tmp_path_factory.mktemp("films"), request.param)
    model = transformers.AutoModelForImageTextToText.from_pretrained(folder, dtype="float32").eval()
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    cache = KvCacheConfig(max_tokens=4096)
    with LLM(folder, dtype="float32", device="cpu", max_num_tokens=96, kv_cache_config=cache) as llm:
        yield llm, Theirs(request.param, tokenizer, processor, model, reference)


side = st.integers(10, 60).map(lambda half: 2 * half)
films = st.builds(
    Film,
    st.sampled_from(["mp4", "webm", "array", "pictures", "frames"]),
    st.integers(1, 9),
    side,
    side,
    st.sampled_from([1, 2, 5, 24]),
)
words = st.text("abc XYZ.?é漢", max_size=12).map(lambda text: f"a{text}z")
conversations = st.tuples(films, st.lists(st.one_of(words, films, st.tuples(side, side)), max_size=3)).map(
    lambda drawn: [drawn[0], *drawn[1], "What happens?"]
)


@settings(max_examples=60)
@given(parts=conversations)
def test_greedy_tokens(both: tuple[LLM, Theirs], parts: list[Part]) -> None:
    llm, theirs = both
    output = llm.chat(messages(parts), ANSWER)
    assert isinstance(output, RequestOutput)
    answer = list(output.token_ids)
    ids, expected = theirs.next_tokens(parts, answer)
    assert list(output.prompt_token_ids) == ids
    assert answer == expected
    assert len(answer) == 8


def test_answers_depend_on_the_film_and_on_its_rate(both: tuple[LLM, Theirs]) -> None:
    """Else the parity above would say little."""
    llm, theirs = both
    asked = [messages([Film("array", n, 84, 56, 2), "What?"]) for n in (4, 6, 8, 10)]
    assert len({output.token_ids for output in llm.chat(asked, ANSWER, use_tqdm=False)}) >= 3
    if theirs.variant == "2.5":
        frames = np.stack(Film("array", 4, 84, 84, 1).pixels)
        rates = [messages_of((frames, rate)) for rate in (0.1, 0.5, 1, 2)]
        assert len({output.token_ids for output in llm.chat(rates, ANSWER, use_tqdm=False)}) >= 2


def messages_of(video: Any) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": [{"type": "video", "video": video}, {"type": "text", "text": "What?"}]}
    ]


def test_every_way_in_gives_one_answer(both: tuple[LLM, Theirs], tmp_path: Path) -> None:
    """A path, a ``data:`` URL in a part of type video_url, a text prompt, and one for each of two videos."""
    llm, _ = both
    film = Film("mp4", 6, 80, 64, 5)
    path = tmp_path / "film.mp4"
    path.write_bytes(film.file())
    url = "data:video/mp4;base64," + base64.b64encode(film.file()).decode()
    part = {"type": "video_url", "video_url": {"url": url}}
    chats = [
        messages_of(film.file()),
        messages_of(str(path)),
        [{"role": "user", "content": [part, {"type": "text", "text": "What?"}]}],
    ]
    answers = {output.token_ids for output in llm.chat(chats, ANSWER, use_tqdm=False)}
    for video in (film.file(), [path]):
        prompt = {"prompt": "What?", "multi_modal_data": {"video": video}}
        answers.add(llm.generate(prompt, ANSWER).token_ids)
    assert len(answers) == 1


def test_options_of_one_video(both: tuple[LLM, Theirs]) -> None:
    llm, _ = both
    films = [Film("mp4", 8, 80, 64, 5).file()] * 2
    prompt = {
        "prompt": "Compare.",
        "multi_modal_data": {"video": films},
        "mm_processor_kwargs": [{"frames": [0, 3, 7]}, {"fps": 5, "max_pixels": 56 * 56}],
    }
    request = llm.preprocess(prompt)
    first, second = (item.plan for item in request.items)
    assert (first.source.frames, first.geometry[0]) == ((0, 3, 7), 2)
    assert (second.source.frames, second.geometry) == (tuple(range(8)), (4, 2, 4))
    assert first.times == pytest.approx((2 * 3.5 / 5,))
    assert llm.generate(prompt, ANSWER).token_ids == llm.generate(request, ANSWER).token_ids
