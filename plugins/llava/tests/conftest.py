"""A tiny checkpoint of each generation, opened here and by transformers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from mmcore_llava.adapter import LlavaAdapter
from mmcore_llava.testing import TOKEN_IDS, VARIANTS, Variant, write_tiny_checkpoint
from PIL import Image
from torch import Tensor

from mmcore import LLM, KvCacheConfig
from mmcore.adapter import Adapter
from mmcore.inputs.checkpoint import Checkpoint
from mmcore.model.weights import Model, build_model, load_weights

transformers = pytest.importorskip("transformers")

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]

# The same profiles as the repository's own tests: a plugin's tests also run alone.
settings.register_profile("ci", max_examples=60, deadline=None, suppress_health_check=_SLOW, derandomize=True)
settings.register_profile("long", max_examples=5000, deadline=None, suppress_health_check=_SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@dataclass(frozen=True)
class Reference:
    """transformers' image processor, tokenizer and model over one folder."""

    processor: Any
    tokenizer: Any
    model: Any

    @classmethod
    def open(cls, folder: Path) -> Reference:
        return cls(
            transformers.AutoImageProcessor.from_pretrained(folder, backend="pil"),
            transformers.AutoTokenizer.from_pretrained(folder),
            transformers.AutoModelForImageTextToText.from_pretrained(folder, dtype="float32").eval(),
        )

    def pixels(self, pictures: Sequence[Image.Image]) -> list[np.ndarray]:
        """The tiles of each picture, [tiles, 3, height, width]; empty ones may fill up the batch."""
        values = self.arrays(pictures)["pixel_values"]
        return [tiles if tiles.ndim == 4 else tiles[None] for tiles in values]

    def arrays(self, pictures: Sequence[Image.Image]) -> dict[str, Any]:
        """The pictures of one prompt."""
        nested = "Onevision" in type(self.processor).__name__
        found = self.processor([list(pictures)] if nested else list(pictures))
        return dict(found)

    @torch.inference_mode()
    def image_rows(self, pictures: Sequence[Image.Image]) -> list[Tensor]:
        """What the language model sees of each picture, [rows, hidden]."""
        arrays = self.arrays(pictures)
        values = [torch.as_tensor(np.asarray(tiles), dtype=torch.float32) for tiles in arrays["pixel_values"]]
        sizes = [torch.tensor(size) for size in arrays.get("image_sizes", [])]
        if not sizes:
            return list(self.model.get_image_features(torch.stack(values)).pooler_output)
        most = max(len(tiles) for tiles in values)
        padded = [torch.nn.functional.pad(v, (0, 0, 0, 0, 0, 0, 0, most - len(v))) for v in values]
        count = arrays.get("batch_num_images")
        more = {} if count is None else {"batch_num_images": torch.tensor(count)}
        found = self.model.get_image_features(torch.stack(padded), torch.stack(sizes), **more)
        return list(found.pooler_output)

    @torch.inference_mode()
    def video_rows(self, frames: Tensor) -> Tensor:
        """Of normalised frames [frames, 3, height, width]."""
        rows: Tensor = self.model.get_video_features(frames[None]).pooler_output[0]
        return rows

    @torch.inference_mode()
    def logits(self, prompt: Sequence[int], rows: Sequence[Tensor], answer: Sequence[int]) -> Tensor:
        """[answer, vocabulary]: what follows each prefix of the answer. Placeholders hold ``rows`` in order;
        one among the generated tokens is an ordinary token."""
        tokens = torch.tensor([[*prompt, *answer]])
        slots = (tokens == TOKEN_IDS["<image>"]) | (tokens == TOKEN_IDS["<video>"])
        slots[:, len(prompt) :] = False
        embedded = self.model.get_input_embeddings()(tokens)
        if rows:
            embedded[slots] = torch.cat(list(rows))
        hidden = self.model.model.language_model(inputs_embeds=embedded).last_hidden_state[0]
        found: Tensor = self.model.lm_head(hidden[len(prompt) - 1 : -1])
        return found


@dataclass(frozen=True, repr=False)
class Subject:
    """One tiny checkpoint, opened on both sides."""

    variant: str
    adapter: Adapter
    llm: LLM
    reference: Reference
    model: Model
    chat_template: str

    def __repr__(self) -> str:
        return self.variant


@contextmanager
def opened(folder: Path, variant: Variant) -> Iterator[Subject]:
    checkpoint = Checkpoint(write_tiny_checkpoint(folder, variant))
    adapter = LlavaAdapter.from_config(checkpoint.config, checkpoint)
    model = build_model(adapter, torch.float32, torch.device("cpu"))
    load_weights(model, adapter, checkpoint.weight_files())
    template = checkpoint.chat_template
    assert template is not None
    cache = KvCacheConfig(max_tokens=8192)
    with LLM(folder, dtype="float32", device="cpu", max_num_tokens=96, kv_cache_config=cache) as llm:
        yield Subject(variant, adapter, llm, Reference.open(folder), model, template)


@pytest.fixture(scope="session", params=VARIANTS)
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    with opened(tmp_path_factory.mktemp("llava"), request.param) as found:
        yield found


@pytest.fixture(scope="session")
def onevision(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    """The generation that takes videos."""
    with opened(tmp_path_factory.mktemp("onevision"), "onevision") as found:
        yield found
