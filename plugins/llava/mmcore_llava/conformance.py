"""What the conformance kit tries its laws on: tiny checkpoints, and transformers as the reference."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from mmcore.testing.family import Case, Family
from mmcore.testing.samples import Medium
from mmcore_llava.testing import TOKEN_IDS, VARIANTS, write_tiny_checkpoint


class TransformersLlava:
    """Implements `mmcore.testing.family.Reference` for pictures."""

    def __init__(self, folder: Path) -> None:
        import transformers

        library: Any = transformers
        self._processor = library.AutoImageProcessor.from_pretrained(folder, backend="pil")
        self._model = library.AutoModelForImageTextToText.from_pretrained(folder, dtype="float32").eval()

    @torch.inference_mode()
    def logits(self, prompt: Sequence[int], media: Sequence[Medium], answer: Sequence[int]) -> Tensor:
        tokens = torch.tensor([[*prompt, *answer]])
        slots = tokens == TOKEN_IDS["<image>"]
        slots[:, len(prompt) :] = False
        embedded = self._model.get_input_embeddings()(tokens)
        if media:
            embedded[slots] = torch.cat(self._rows([Image.fromarray(one.media().data) for one in media]))
        hidden = self._model.model.language_model(inputs_embeds=embedded).last_hidden_state[0]
        found: Tensor = self._model.lm_head(hidden[len(prompt) - 1 : -1])
        return found

    def _rows(self, pictures: list[Image.Image]) -> list[Tensor]:
        """What the language model sees of each picture of one prompt, [rows, hidden]."""
        nested = "Onevision" in type(self._processor).__name__
        arrays = dict(self._processor([pictures] if nested else pictures))
        values = [torch.as_tensor(np.asarray(tiles), dtype=torch.float32) for tiles in arrays["pixel_values"]]
        if "image_sizes" not in arrays:
            return list(self._model.get_image_features(torch.stack(values)).pooler_output)
        sizes = torch.stack([torch.tensor(size) for size in arrays["image_sizes"]])
        most = max(len(tiles) for tiles in values)
        padded = [torch.nn.functional.pad(v, (0, 0, 0, 0, 0, 0, 0, most - len(v))) for v in values]
        count = arrays.get("batch_num_images")
        more = {} if count is None else {"batch_num_images": torch.tensor(count)}
        return list(self._model.get_image_features(torch.stack(padded), sizes, **more).pooler_output)


_CLIP = {
    "model_type": "clip_vision_model",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_hidden_layers": 24,
    "image_size": 336,
    "patch_size": 14,
}
_SIGLIP = {
    "model_type": "siglip_vision_model",
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_attention_heads": 16,
    "num_hidden_layers": 26,
    "image_size": 384,
    "patch_size": 14,
    "vision_use_head": False,
}
_VICUNA = {"model_type": "llama", "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "vocab_size": 32_064}
_MISTRAL = {
    "model_type": "mistral",
    "intermediate_size": 14_336,
    "max_position_embeddings": 32_768,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1_000_000.0,
    "sliding_window": None,
    "vocab_size": 32_064,
}
_QWEN2 = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "rope_theta": 1_000_000.0,
    "tie_word_embeddings": True,
    "vocab_size": 152_000,
}
_LARGE = {
    "hidden_size": 5120,
    "intermediate_size": 13_824,
    "num_attention_heads": 40,
    "num_hidden_layers": 40,
}
_PINPOINTS = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]
_MANY = [[384 * tall, 384 * wide] for tall in range(1, 7) for wide in range(1, 7)]


def _published(kind: str, text: dict[str, Any], vision: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """``config.json``."""
    names = {"llava": "Llava", "llava_next": "LlavaNext", "llava_onevision": "LlavaOnevision"}
    return {
        "architectures": [f"{names[kind]}ForConditionalGeneration"],
        "model_type": kind,
        "image_token_index": 32_000,
        "projector_hidden_act": "gelu",
        "vision_feature_layer": -2,
        "vision_feature_select_strategy": "default",
        "text_config": text,
        "vision_config": vision,
        **fields,
    }


_ONEVISION = {
    "image_token_index": 151_646,
    "video_token_index": 151_647,
    "vision_feature_layer": -1,
    "vision_feature_select_strategy": "full",
    "vision_aspect_ratio": "anyres_max_9",
    "image_grid_pinpoints": _MANY,
    "tie_word_embeddings": True,
}
PUBLISHED = {
    "llava-1.5-7b": _published("llava", _VICUNA, _CLIP),
    "llava-1.5-13b": _published(
        "llava", {**_VICUNA, **_LARGE, "num_key_value_heads": 40}, _CLIP, pad_token_id=32_001
    ),
    "llava-v1.6-mistral-7b": _published("llava_next", _MISTRAL, _CLIP, image_grid_pinpoints=_PINPOINTS),
    "llava-v1.6-vicuna-7b": _published("llava_next", _VICUNA, _CLIP, image_grid_pinpoints=_PINPOINTS),
    "llava-onevision-qwen2-0.5b": _published("llava_onevision", _QWEN2, _SIGLIP, **_ONEVISION),
}


def _pictures(config: dict[str, Any]) -> dict[str, Any]:
    side = config["vision_config"]["image_size"]
    square = {"height": side, "width": side}
    if config["model_type"] == "llava_onevision":
        half = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
        return {"image_processor_type": "LlavaOnevisionImageProcessor", "size": square, **half}
    return {
        "image_processor_type": "CLIPImageProcessor",
        "size": {"shortest_edge": side},
        "crop_size": square,
    }


_MODELS = {"1.5": "LLaVA-1.5", "next": "LLaVA-NeXT", "onevision": "LLaVA-OneVision"}

FAMILY = Family(
    adapter="llava",
    cases=tuple(
        Case(
            name=name,
            write=partial(write_tiny_checkpoint, variant=name),
            reference=TransformersLlava,
            reference_takes=("image",),
            models=_MODELS[name],
        )
        for name in VARIANTS
    ),
    published=PUBLISHED,
    published_files={name: {"preprocessor_config.json": _pictures(c)} for name, c in PUBLISHED.items()},
    options={"video": ({"max_frames": 1},)},
)
