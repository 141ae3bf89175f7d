"""What the conformance kit tries its laws on: tiny checkpoints, and transformers as the reference."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from mmcore.testing.family import Case, Family
from mmcore.testing.samples import Medium
from mmcore_qwen2vl.testing import TOKEN_IDS, write_tiny_checkpoint

PADS = {modality: TOKEN_IDS[f"<|{modality}_pad|>"] for modality in ("image", "video")}


class TransformersQwen2VL:
    """Implements `mmcore.testing.family.Reference`.

    Transformers without torchvision has no video processor, and counts time otherwise than Qwen's own code
    after a video: prompts with videos are left to the family's own tests of parity.
    """

    def __init__(self, folder: Path) -> None:
        import transformers

        processors: Any = transformers.AutoImageProcessor
        models: Any = transformers.AutoModelForImageTextToText
        self._processor = processors.from_pretrained(folder, backend="pil")
        self._model = models.from_pretrained(folder, dtype="float32").eval()

    @torch.inference_mode()
    def logits(self, prompt: Sequence[int], media: Sequence[Medium], answer: Sequence[int]) -> Tensor:
        tokens = torch.tensor([[*prompt, *answer]])
        slots = (tokens == PADS["image"]).int()
        slots[:, len(prompt) :] = 0
        embedded = self._model.get_input_embeddings()(tokens)
        grids = None
        if media:
            pictures = [Image.fromarray(medium.media().data) for medium in media]
            arrays = self._processor(pictures, return_tensors="pt")
            grids = arrays["image_grid_thw"]
            embedded[slots.bool()] = self._model.model.visual(
                arrays["pixel_values"], grid_thw=grids
            ).pooler_output
        positions, _ = self._model.model.get_rope_index(tokens, slots, grids)
        logits = self._model(inputs_embeds=embedded, position_ids=positions).logits[0]
        found: Tensor = logits[len(prompt) - 1 : -1]
        return found


_VISION = {"depth": 32, "num_heads": 16, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2}
_WINDOWED = {
    "hidden_act": "silu",
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "window_size": 112,
    "fullatt_block_indexes": [7, 15, 23, 31],
    "tokens_per_second": 2,
}


def _published(generation: str, sizes: tuple[int, int, int, int, int], tied: bool) -> dict[str, Any]:
    """``config.json``; ``sizes``: hidden, intermediate, layers, heads, KV heads."""
    hidden, intermediate, layers, heads, kv_heads = sizes
    plain = {"embed_dim": 1280, "mlp_ratio": 4, "hidden_size": hidden, "in_chans": 3}
    windowed = {**_WINDOWED, "out_hidden_size": hidden}
    return {
        "architectures": [f"Qwen{generation}VLForConditionalGeneration"],
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": 151_936 if tied else 152_064,
        "hidden_act": "silu",
        "max_position_embeddings": 32_768 if generation == "2" else 128_000,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0,
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
        "sliding_window": 32_768,
        "use_sliding_window": False,
        "tie_word_embeddings": tied,
        "image_token_id": 151_655,
        "video_token_id": 151_656,
        "vision_config": {**_VISION, **(plain if generation == "2" else windowed)},
    }


def _case(name: str, variant: str, **options: Any) -> Case:
    return Case(
        name=name,
        write=partial(write_tiny_checkpoint, variant=variant, **options),  # type: ignore[arg-type]
        reference=TransformersQwen2VL,
        reference_takes=("image",),
        models=f"Qwen{variant}-VL",
    )


FAMILY = Family(
    adapter="qwen2vl",
    cases=(
        _case("2", "2"),
        _case("2.5", "2.5"),
        _case("2.5 nested", "2.5", nested=True, prefixed=True, shards=2),
    ),
    published={
        "Qwen2-VL-2B": _published("2", (1536, 8960, 28, 12, 2), tied=True),
        "Qwen2-VL-7B": _published("2", (3584, 18_944, 28, 28, 4), tied=False),
        "Qwen2.5-VL-3B": _published("2_5_", (2048, 11_008, 36, 16, 2), tied=True),
        "Qwen2.5-VL-7B": _published("2_5_", (3584, 18_944, 28, 28, 4), tied=False),
    },
    options={
        "image": ({"max_pixels": 28 * 28 * 8},),
        "video": ({"fps": 0.5}, {"max_frames": 4}),
    },
)
