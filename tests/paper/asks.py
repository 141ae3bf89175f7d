"""Questions to paper families: few pictures, sounds and words, so that caches are hit and keys come close."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mmcore.adapter import Adapter, Fusion
from mmcore.inputs.prompt import TextPrompt
from mmcore.sampling_params import SamplingParams


def picture(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def sound(samples: int, seed: int = 0) -> tuple[np.ndarray, int]:
    return np.random.default_rng(seed).uniform(-1, 1, samples).astype(np.float32), 16_000


PICTURES = (picture(28, 28), picture(28, 28, 1), picture(56, 84), picture(84, 56), picture(20, 90, 2))
SOUNDS = (sound(20_000), sound(70_000), sound(70_000, 1), sound(33_000))
WORDS = ("what is it", "what is in it?", "", "x", "what")


@dataclass(frozen=True)
class Ask:
    """``pieces`` are texts and numbers of media. A prompt without text is about the first medium alone."""

    pieces: tuple[int | str, ...]
    max_tokens: int = 8
    temperature: float = 0.0
    n: int = 1
    salt: str = ""
    language: int | None = None

    @property
    def sampling(self) -> SamplingParams:
        return SamplingParams(max_tokens=self.max_tokens, temperature=self.temperature, seed=7, n=self.n)

    def prompt(self, adapter: Adapter) -> TextPrompt:
        numbers = [piece for piece in self.pieces if isinstance(piece, int)]
        pictures = [PICTURES[i % len(PICTURES)] for i in numbers or [0]]
        if adapter.fusion is Fusion.INTERLEAVED or adapter.context is not None:
            slot = adapter.placeholders[0].text if adapter.placeholders else ""
            text = "".join(piece if isinstance(piece, str) else slot for piece in self.pieces)
            return self._whole(text, "image", pictures if numbers else [])
        if "image" in adapter.inputs.modalities:
            return self._whole("", "image", pictures[:1])
        options = {} if self.language is None else {"language": self.language}
        return self._whole("", "audio", [SOUNDS[i % len(SOUNDS)] for i in (numbers or [0])[:1]], options)

    def _whole(
        self, text: str, modality: str, media: list[Any], options: dict[str, int] | None = None
    ) -> TextPrompt:
        return TextPrompt(
            prompt=text,
            multi_modal_data={modality: media} if media else {},
            decoder_options=options or {},
            cache_salt=self.salt,
        )


def asks() -> st.SearchStrategy[Ask]:
    pieces = st.lists(st.integers(0, 4) | st.sampled_from(WORDS), max_size=4)
    return st.builds(
        Ask,
        pieces=pieces.map(lambda some: (*some, "?")),
        max_tokens=st.sampled_from([1, 4, 9, 20]),
        temperature=st.sampled_from([0.0, 0.0, 0.7]),
        n=st.sampled_from([1, 1, 1, 2, 3]),
        salt=st.sampled_from(["", "", "", "tenant"]),
        language=st.none() | st.integers(65, 66),
    )
