"""What the conformance kit tries its laws on: tiny checkpoints, and transformers as the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mmcore.inputs.sound import cut_sound
from mmcore.request import SourceSpec
from mmcore.testing.family import Case, Family, Reference
from mmcore.testing.samples import Medium
from mmcore_whisper.testing import write_tiny_checkpoint

RATE = 16_000


class Features:
    """The first window of each recording, as the feature extractor of transformers makes it."""

    def __init__(self, folder: Path) -> None:
        from transformers import WhisperFeatureExtractor

        self._extractor: Any = WhisperFeatureExtractor.from_pretrained(folder)

    def __call__(self, media: Sequence[Medium]) -> Sequence[Mapping[str, np.ndarray]]:
        return [{"features": self._window(medium)} for medium in media]

    def _window(self, medium: Medium) -> np.ndarray:
        """Of a longer recording the window is cut from the whole spectrogram, as in its long-form mode."""
        samples = cut_sound(medium.media(), SourceSpec(sample_rate=RATE)).data
        extractor = self._extractor
        frames = extractor.n_samples // extractor.hop_length
        longer = {"truncation": False, "padding": "longest"} if len(samples) > extractor.n_samples else {}
        found = extractor(samples, sampling_rate=RATE, return_tensors="np", **longer).input_features[0]
        window: np.ndarray = found[:, :frames]
        return window


class TransformersWhisper:
    """Implements `mmcore.testing.family.Reference`."""

    def __init__(self, folder: Path) -> None:
        from transformers import WhisperForConditionalGeneration

        models: Any = WhisperForConditionalGeneration
        self._model = models.from_pretrained(folder, dtype=torch.float32).eval()
        self._features = Features(folder)

    @torch.inference_mode()
    def logits(self, prompt: Sequence[int], media: Sequence[Medium], answer: Sequence[int]) -> torch.Tensor:
        features = torch.from_numpy(self._features(media)[0]["features"])[None]
        encoded = self._model.model.encoder(features)
        ids = torch.tensor([[*prompt, *answer]])
        logits = self._model(encoder_outputs=encoded, decoder_input_ids=ids).logits[0]
        found: torch.Tensor = logits[len(prompt) - 1 : -1]
        return found


def _reference(folder: Path) -> Reference:
    return TransformersWhisper(folder)


def _case(name: str, **options: Any) -> Case:
    write = partial(write_tiny_checkpoint, **options)
    return Case(
        name=name,
        write=write,
        reference=_reference,
        preprocessing=Features,
        preprocessing_bound=1e-4,
        models="Whisper",
    )


def _published(width: int, layers: int, heads: int, mels: int = 80, vocab: int = 51_865) -> dict[str, Any]:
    """``config.json`` of one size (openai/whisper-*)."""
    sizes = {"attention_heads": heads, "ffn_dim": 4 * width, "layers": layers}
    return {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "activation_function": "gelu",
        "d_model": width,
        "vocab_size": vocab,
        "num_mel_bins": mels,
        "max_source_positions": 1500,
        "max_target_positions": 448,
        "decoder_start_token_id": 50_258,
        "eos_token_id": 50_257,
        **{f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()},
    }


def _extractor(mels: int) -> dict[str, Any]:
    settings = {"feature_size": mels, "n_fft": 400, "hop_length": 160, "sampling_rate": RATE}
    return {"preprocessor_config.json": settings}


PUBLISHED = {
    "whisper-tiny": _published(384, 4, 6),
    "whisper-base": _published(512, 6, 8),
    "whisper-small": _published(768, 12, 12),
    "whisper-medium": _published(1024, 24, 16),
    "whisper-large-v2": _published(1280, 32, 20),
    "whisper-large-v3": _published(1280, 32, 20, mels=128, vocab=51_866),
}

FAMILY = Family(
    adapter="whisper",
    cases=(
        _case("multilingual"),
        _case("english", variant="english"),
        _case("large", mels=128, rows=100, encoder_layers=3, decoder_layers=1, shards=2),
    ),
    published=PUBLISHED,
    published_files={name: _extractor(config["num_mel_bins"]) for name, config in PUBLISHED.items()},
)
