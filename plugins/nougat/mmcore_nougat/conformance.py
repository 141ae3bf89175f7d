"""What the conformance kit tries its laws on: tiny checkpoints, and transformers as the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmcore.testing.family import Case, Family
from mmcore.testing.samples import Medium
from mmcore_nougat.testing import VARIANTS, write_tiny_checkpoint


class Pages:
    """Pages as the published image processor makes them."""

    def __init__(self, folder: Path) -> None:
        import transformers

        library: Any = transformers
        self._processor = library.AutoImageProcessor.from_pretrained(folder, backend="pil")

    def of(self, page: np.ndarray) -> np.ndarray:
        """[3, height, width] of uint8 [H, W, 3]."""
        return np.asarray(self._processor(page, input_data_format="channels_last")["pixel_values"][0])

    def __call__(self, media: Sequence[Medium]) -> Sequence[Mapping[str, np.ndarray]]:
        """In the arrays of the adapter's own `preprocess`, which leaves levels to the encoder."""
        mean, std = (np.asarray(part) for part in (self._processor.image_mean, self._processor.image_std))
        pages = [self.of(medium.media().data).transpose(1, 2, 0) for medium in media]
        return [{"page": (page.astype(np.float64) * std + mean) * 255} for page in pages]


class TransformersNougat:
    """Implements `mmcore.testing.family.Reference`."""

    def __init__(self, folder: Path) -> None:
        import transformers

        library: Any = transformers
        models = library.VisionEncoderDecoderModel
        self.model = models.from_pretrained(folder, dtype=torch.float32).eval()
        self.pages = Pages(folder)

    @torch.inference_mode()
    def logits(self, prompt: Sequence[int], media: Sequence[Medium], answer: Sequence[int]) -> Tensor:
        return self.answered(media[0].media().data, prompt, answer)

    @torch.inference_mode()
    def answered(self, page: np.ndarray, prompt: Sequence[int], answer: Sequence[int]) -> Tensor:
        """[answer, vocabulary]: what follows each prefix of the answer."""
        pixels = torch.as_tensor(self.pages.of(page), dtype=torch.float32)[None]
        ids = torch.tensor([[*prompt, *answer]])
        found: Tensor = self.model(pixel_values=pixels, decoder_input_ids=ids).logits[0]
        return found[len(prompt) - 1 : -1]


# ------------------------------------------------------------------ published checkpoints


def _encoder(height: int, width: int, window: int) -> dict[str, Any]:
    return {
        "model_type": "donut-swin",
        "image_size": [height, width],
        "patch_size": 4,
        "num_channels": 3,
        "embed_dim": 128,
        "depths": [2, 2, 14, 2],
        "num_heads": [4, 8, 16, 32],
        "window_size": window,
        "mlp_ratio": 4.0,
        "qkv_bias": True,
        "hidden_act": "gelu",
        "hidden_size": 1024,
        "layer_norm_eps": 1e-5,
        "drop_path_rate": 0.1,
        "use_absolute_embeddings": False,
    }


def _decoder(layers: int, length: int, vocabulary: int, *, tied: bool) -> dict[str, Any]:
    return {
        "model_type": "mbart",
        "is_decoder": True,
        "is_encoder_decoder": False,
        "add_cross_attention": True,
        "add_final_layer_norm": True,
        "activation_function": "gelu",
        "d_model": 1024,
        "decoder_layers": layers,
        "decoder_ffn_dim": 4096,
        "decoder_attention_heads": 16,
        "max_position_embeddings": length,
        "vocab_size": vocabulary,
        "scale_embedding": True,
        "tie_word_embeddings": tied,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "forced_eos_token_id": 2,
    }


def _published(encoder: dict[str, Any], decoder: dict[str, Any], **more: Any) -> dict[str, Any]:
    """``config.json``."""
    return {
        "architectures": ["VisionEncoderDecoderModel"],
        "model_type": "vision-encoder-decoder",
        "is_encoder_decoder": True,
        "encoder": encoder,
        "decoder": decoder,
        **more,
    }


_PAPER, _FORM, _RECEIPT = _encoder(896, 672, 7), _encoder(2560, 1920, 10), _encoder(1280, 960, 10)
PUBLISHED = {
    "nougat-base": _published(
        _PAPER, _decoder(10, 4096, 50_000, tied=False), decoder_start_token_id=0, tie_word_embeddings=False
    ),
    "nougat-small": _published(
        _PAPER, _decoder(4, 3584, 50_000, tied=False), decoder_start_token_id=0, tie_word_embeddings=False
    ),
    "donut-base": _published(_FORM, _decoder(4, 1536, 57_525, tied=True)),
    "donut-base-finetuned-docvqa": _published(_FORM, _decoder(4, 128, 57_532, tied=True), pad_token_id=1),
    "donut-base-finetuned-cord-v2": _published(
        _RECEIPT, _decoder(4, 768, 57_580, tied=True), decoder_start_token_id=57_579, pad_token_id=1
    ),
}


def published_files(config: Mapping[str, Any]) -> dict[str, Any]:
    """Its other JSON files, by name."""
    height, width = config["encoder"]["image_size"]
    steps = {f"do_{step}": True for step in ("resize", "thumbnail", "pad", "normalize")}
    common = {**steps, "do_align_long_axis": False, "resample": 2}
    if height != 896:  # the width first, as it was written then
        form = {"feature_extractor_type": "DonutFeatureExtractor", "size": [width, height]}
        levels = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
        return {"preprocessor_config.json": {**form, **common, **levels}}
    paper = {"image_processor_type": "NougatImageProcessor", "do_crop_margin": True, "do_rescale": True}
    levels = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
    size = {"size": {"height": height, "width": width}, "rescale_factor": 0.00392156862745098}
    return {"preprocessor_config.json": {**paper, **common, **levels, **size}}


FAMILY = Family(
    adapter="nougat",
    cases=tuple(
        Case(
            name=name,
            write=partial(write_tiny_checkpoint, variant=name),
            reference=TransformersNougat,
            preprocessing=Pages,
            preprocessing_bound=1e-4,
            models=name.capitalize(),
        )
        for name in VARIANTS
    ),
    published=PUBLISHED,
    published_files={name: published_files(config) for name, config in PUBLISHED.items()},
)
