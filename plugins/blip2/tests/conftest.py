"""Tiny checkpoints of both language models, opened here and by transformers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from mmcore_blip2.adapter import Blip2Adapter
from mmcore_blip2.testing import TOKEN_IDS, write_tiny_checkpoint
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

VARIANTS: dict[str, dict[str, Any]] = {
    "opt": {},
    "opt-old": {"variant": "opt", "old": True, "shards": 2},
    "t5": {},
    "t5-tied": {"variant": "t5", "tied": True},
}


@dataclass(frozen=True)
class Reference:
    """transformers' image processor, tokenizer and model over one folder."""

    processor: Any
    tokenizer: Any
    model: Any

    @classmethod
    def open(cls, folder: Path) -> Reference:
        return cls(
            transformers.BlipImageProcessorPil.from_pretrained(folder),
            transformers.AutoTokenizer.from_pretrained(folder),
            transformers.Blip2ForConditionalGeneration.from_pretrained(folder, dtype="float32").eval(),
        )

    def pixels(self, picture: Image.Image) -> np.ndarray:
        """[1, 3, height, width]."""
        return np.asarray(self.processor(picture)["pixel_values"])

    @torch.inference_mode()
    def image_rows(self, picture: Image.Image) -> Tensor:
        """[rows, hidden]."""
        found: Tensor = self.model.get_image_features(torch.as_tensor(self.pixels(picture))).pooler_output[0]
        return found

    def embedded(self, picture: Image.Image | None, text_ids: Sequence[int]) -> Tensor:
        """[1, rows + text, hidden]: what the language model reads."""
        text = self.model.get_input_embeddings()(torch.tensor([text_ids], dtype=torch.long))
        return text if picture is None else torch.cat([self.image_rows(picture)[None], text], dim=1)

    @torch.inference_mode()
    def logits(self, picture: Image.Image | None, text_ids: Sequence[int], answer: Sequence[int]) -> Tensor:
        """[answer, vocabulary]: what follows each prefix of the answer."""
        language, embedded = self.model.language_model, self.embedded(picture, text_ids)
        if language.config.is_encoder_decoder:
            start = torch.tensor([[TOKEN_IDS["<pad>"], *answer[:-1]]])
            found: Tensor = language(inputs_embeds=embedded, decoder_input_ids=start).logits[0]
            return found
        answered = self.model.get_input_embeddings()(torch.tensor([answer[:-1]], dtype=torch.long))
        whole = language(inputs_embeds=torch.cat([embedded, answered], dim=1)).logits[0]
        return whole[embedded.shape[1] - 1 :]  # type: ignore[no-any-return]


@dataclass(frozen=True, repr=False)
class Subject:
    """One tiny checkpoint, opened on both sides."""

    variant: str
    adapter: Adapter
    llm: LLM
    reference: Reference
    model: Model

    def __repr__(self) -> str:
        return self.variant


@pytest.fixture(scope="session", params=VARIANTS)
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    folder = tmp_path_factory.mktemp("blip2")
    options = {"variant": request.param, **VARIANTS[request.param]}
    checkpoint = Checkpoint(write_tiny_checkpoint(folder, **options))
    adapter = Blip2Adapter.from_config(checkpoint.config, checkpoint)
    model = build_model(adapter, torch.float32, torch.device("cpu"))
    load_weights(model, adapter, checkpoint.weight_files())
    cache = KvCacheConfig(max_tokens=4096, tokens_per_block=8)
    with LLM(folder, dtype="float32", device="cpu", max_num_tokens=7, kv_cache_config=cache) as llm:
        yield Subject(request.param, adapter, llm, Reference.open(folder), model)
