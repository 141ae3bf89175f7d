"""What the conformance kit tries its laws on: tiny checkpoints, and transformers as the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmcore.inputs.ops import NumpyOps
from mmcore.testing.family import Case, Family
from mmcore.testing.samples import Medium
from mmcore_blip2.testing import Variant, write_tiny_checkpoint


class Pixels:
    """Pictures as the published image processor makes them."""

    def __init__(self, folder: Path) -> None:
        import transformers

        library: Any = transformers
        self._processor = library.AutoImageProcessor.from_pretrained(folder, backend="pil")
        config = library.AutoConfig.from_pretrained(folder)
        self._patch = config.vision_config.patch_size

    def of(self, picture: np.ndarray) -> np.ndarray:
        """[3, height, width] of uint8 [height, width, 3]."""
        return np.asarray(self._processor(picture, input_data_format="channels_last")["pixel_values"][0])

    def __call__(self, media: Sequence[Medium]) -> Sequence[Mapping[str, np.ndarray]]:
        """In the arrays of the adapter's own `preprocess`."""
        pictures = [self.of(medium.media().data).transpose(1, 2, 0) for medium in media]
        return [{"patches": NumpyOps().patchify(one[None], patch=self._patch)} for one in pictures]


class TransformersBlip2:
    """Implements `mmcore.testing.family.Reference`."""

    def __init__(self, folder: Path) -> None:
        import transformers

        library: Any = transformers
        models = library.Blip2ForConditionalGeneration
        self.model = models.from_pretrained(folder, dtype=torch.float32).eval()
        self.tokenizer = library.AutoTokenizer.from_pretrained(folder)
        self.pixels = Pixels(folder)

    def logits(self, prompt: Sequence[int], media: Sequence[Medium], answer: Sequence[int]) -> Tensor:
        pictures = [medium.media().data for medium in media]
        if self.model.language_model.config.is_encoder_decoder:
            return self.answered(pictures, prompt, answer)
        table = self.model.get_input_embeddings().weight
        tokens = torch.tensor(prompt)
        slots = (tokens == self.model.config.image_token_index) | (tokens >= len(table))
        embedded = table[tokens.masked_fill(slots, 0)].detach().clone()
        if pictures:
            embedded[slots] = torch.cat([self.rows(picture) for picture in pictures])
        return self._following(embedded[None], answer)

    def answered(self, pictures: Sequence[np.ndarray], text: Sequence[int], answer: Sequence[int]) -> Tensor:
        """[answer, vocabulary]: what follows each prefix of the answer, after pictures and a text."""
        return self._following(self.embedded(pictures, text), answer)

    @torch.inference_mode()
    def _following(self, embedded: Tensor, answer: Sequence[int]) -> Tensor:
        language = self.model.language_model
        if language.config.is_encoder_decoder:
            start = torch.tensor([[language.config.decoder_start_token_id, *answer[:-1]]])
            found: Tensor = language(inputs_embeds=embedded, decoder_input_ids=start).logits[0]
            return found
        answered = self.model.get_input_embeddings()(torch.tensor([answer[:-1]], dtype=torch.long))
        whole: Tensor = language(inputs_embeds=torch.cat([embedded, answered], dim=1)).logits[0]
        return whole[embedded.shape[1] - 1 :]

    @torch.inference_mode()
    def embedded(self, pictures: Sequence[np.ndarray], text: Sequence[int]) -> Tensor:
        """[1, rows + text, hidden]: what the language model reads."""
        words = self.model.get_input_embeddings()(torch.tensor([text], dtype=torch.long))
        return torch.cat([*(self.rows(picture)[None] for picture in pictures), words], dim=1)

    @torch.inference_mode()
    def rows(self, picture: np.ndarray) -> Tensor:
        """[rows, hidden] of uint8 [height, width, 3]."""
        pixels = torch.as_tensor(self.pixels.of(picture), dtype=torch.float32)[None]
        found: Tensor = self.model.get_image_features(pixels).pooler_output[0]
        return found


# ------------------------------------------------------------------ published checkpoints

_OPT = {
    "2.7b": {"hidden_size": 2560, "ffn_dim": 10_240, "num_hidden_layers": 32, "num_attention_heads": 32},
    "6.7b": {"hidden_size": 4096, "ffn_dim": 16_384, "num_hidden_layers": 32, "num_attention_heads": 32},
}
_T5 = {
    "xl": {"d_model": 2048, "d_ff": 5120, "num_heads": 32},
    "xxl": {"d_model": 4096, "d_ff": 10_240, "num_heads": 64},
}


def _published(text: dict[str, Any], side: int = 0, **more: Any) -> dict[str, Any]:
    """``config.json``, as sparse as on the hub."""
    return {
        "architectures": ["Blip2ForConditionalGeneration"],
        "model_type": "blip-2",
        "num_query_tokens": 32,
        "qformer_config": {"model_type": "blip_2_qformer"},
        "text_config": text,
        "vision_config": {"model_type": "blip_2_vision_model", **({"image_size": side} if side else {})},
        **more,
    }


def _opt(size: str, **more: Any) -> dict[str, Any]:
    width = _OPT[size]["hidden_size"]
    return {"model_type": "opt", "word_embed_proj_dim": width, "eos_token_id": 50_118, **_OPT[size], **more}


def _t5(size: str) -> dict[str, Any]:
    return {
        "model_type": "t5",
        "d_kv": 64,
        "num_layers": 24,
        "num_decoder_layers": 24,
        "vocab_size": 32_128,
        "n_positions": 512,
        "feed_forward_proj": "gated-gelu",
        "dense_act_fn": "gelu",
        "tie_word_embeddings": False,
        "decoder_start_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 1,
        **_T5[size],
    }


PUBLISHED = {
    "blip2-opt-2.7b": _published(_opt("2.7b", vocab_size=50_304), image_token_index=50_265),
    "blip2-opt-2.7b, before it named its placeholder": _published(_opt("2.7b")),
    "blip2-opt-2.7b-coco": _published(_opt("2.7b"), 364),
    "blip2-opt-6.7b": _published(_opt("6.7b")),
    "blip2-opt-6.7b-coco": _published(_opt("6.7b"), 364),
    "blip2-flan-t5-xl": _published(_t5("xl"), image_token_index=32_100),
    "blip2-flan-t5-xl-coco": _published(_t5("xl"), 364),
    "blip2-flan-t5-xxl": _published(_t5("xxl"), image_token_index=32_100),
}


def published_files(config: Mapping[str, Any]) -> dict[str, Any]:
    """Its other JSON files, by name."""
    side = config["vision_config"].get("image_size", 224)
    return {
        "preprocessor_config.json": {
            "image_processor_type": "BlipImageProcessor",
            "size": {"height": side, "width": side},
        }
    }


def _case(name: str, variant: Variant, **options: Any) -> Case:
    write = partial(write_tiny_checkpoint, variant=variant, **options)
    models = f"BLIP-2 with {'OPT' if variant == 'opt' else 'FLAN-T5'}"
    return Case(name=name, write=write, reference=TransformersBlip2, preprocessing=Pixels, models=models)


FAMILY = Family(
    adapter="blip2",
    cases=(
        _case("opt", "opt"),
        _case("t5", "t5"),
        _case("opt-old", "opt", old=True, shards=2),
        _case("t5-tied", "t5", tied=True),
    ),
    published=PUBLISHED,
    published_files={name: published_files(config) for name, config in PUBLISHED.items()},
)
