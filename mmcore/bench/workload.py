"""Requests of one kind, made anew for every run so that no cache has seen them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from mmcore import LLM

WORDS = "the quick brown fox jumps over the lazy dog and runs away into the deep dark wood "


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """``requests`` prompts at once, each with at most one picture or recording.

    ``prompt_tokens`` is the length of a prompt with its media and template; 0 leaves the text as it is.
    """

    name: str
    requests: int = 1
    picture: tuple[int, int] | None = None
    """Width and height."""
    seconds: float = 0.0
    """Of sound."""
    distinct: int = 0
    """Media that the requests share; 0: each has its own."""
    prompt_tokens: int = 0
    new_tokens: int = 128

    def prompts(self, llm: LLM, seed: int, media_seed: int) -> list[Any]:
        """Texts differ by ``seed``, media by ``media_seed``."""
        import numpy as np

        rng = np.random.default_rng(media_seed)
        count = self.distinct or self.requests
        media = [self._medium(rng) for _ in range(count)]
        letters = self._letters(llm, media[0])
        texts = [_text(letters, seed * self.requests + n) for n in range(self.requests)]
        return [self._prompt(text, media[n % count]) for n, text in enumerate(texts)]

    def answer_lengths(self) -> Sequence[int]:
        return [self.new_tokens] * self.requests

    def _medium(self, rng: np.random.Generator) -> Any:
        import numpy as np
        from PIL import Image

        if self.picture is not None:
            width, height = self.picture
            return Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
        if self.seconds:
            return rng.standard_normal(int(16_000 * self.seconds)).astype(np.float32) * 0.1, 16_000
        return None

    def _prompt(self, text: str, medium: Any) -> Any:
        if medium is None:
            return text
        kind = "image" if self.picture is not None else "audio"
        return {"prompt": "" if kind == "audio" else text, "multi_modal_data": {kind: [medium]}}

    def _letters(self, llm: LLM, medium: Any) -> int:
        """Letters of text that make the prompt so long."""
        if not self.prompt_tokens:
            return 64
        low, high = 1, 8 * self.prompt_tokens
        while low < high:
            middle = (low + high) // 2
            length = len(llm.preprocess(self._prompt(_text(middle, 0), medium)).token_ids)
            low, high = (middle + 1, high) if length < self.prompt_tokens else (low, middle)
        return low

    def scaled(self, **fields: Any) -> Workload:
        """The same with some fields replaced."""
        return replace(self, **fields)


def _text(letters: int, seed: int) -> str:
    """Ordinary words after a number that tells prompts apart."""
    start = f"{seed:05d} "
    return (start + WORDS * (letters // len(WORDS) + 1))[:letters]
