"""What `cpu` measures: random weights at a real shape, media, and the same question to transformers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

RATE = 16_000
PICTURE = (336, 336)
QUESTION = "What does this picture show, and where was it taken? "
WHISPER_VOCAB = 51_865
Generate = Callable[[Sequence[Any], int], None]
"""transformers' side: media and new tokens each."""


@dataclass(frozen=True, slots=True)
class Job:
    """One family: a checkpoint folder, its media, and how transformers is asked."""

    folder: Path
    new_tokens: int
    medium: Callable[[np.random.Generator], Any]
    prompt: Callable[[int, Any], Any]
    reference: Callable[[Path], Generate]


# ---------------------------------------------------------------- Whisper base


def whisper(folder: Path) -> Job:
    write_whisper_base(folder)
    return Job(
        folder=folder,
        new_tokens=100,
        medium=lambda rng: rng.standard_normal(30 * RATE).astype(np.float32) * 0.1,
        prompt=lambda _, samples: {"prompt": "", "multi_modal_data": {"audio": [(samples, RATE)]}},
        reference=whisper_reference,
    )


def write_whisper_base(folder: Path) -> None:
    """The published shape; a byte tokenizer, whose vocabulary is filled up with rows that have no name."""
    import torch
    from mmcore_whisper.testing import write_tiny_checkpoint
    from safetensors.torch import load_file, save_file

    shape: dict[str, Any] = {
        "width": 512,
        "heads": 8,
        "encoder_layers": 6,
        "decoder_layers": 6,
        "intermediate": 2048,
    }
    write_tiny_checkpoint(folder, rows=1500, max_length=448, **shape)
    weights = load_file(folder / "model.safetensors")
    rows = weights["model.decoder.embed_tokens.weight"]
    filler = torch.randn(WHISPER_VOCAB - len(rows), 512, generator=torch.Generator().manual_seed(1)) * 0.01
    weights["model.decoder.embed_tokens.weight"] = torch.cat([rows, filler])
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": WHISPER_VOCAB}))


def whisper_reference(folder: Path) -> Generate:
    """The generation loop without what Whisper's own ``generate`` puts around it: that cuts the answer."""
    import torch
    from transformers import GenerationMixin, WhisperFeatureExtractor, WhisperForConditionalGeneration

    model: Any = WhisperForConditionalGeneration.from_pretrained(folder, dtype="float32")
    extractor = WhisperFeatureExtractor.from_pretrained(folder)
    settings = model.generation_config
    prefix = [settings.decoder_start_token_id, settings.lang_to_id["<|en|>"]]
    prefix += [settings.task_to_id["transcribe"], settings.no_timestamps_token_id]

    def generate(media: Sequence[Any], count: int) -> None:
        features = extractor(list(media), sampling_rate=RATE, return_tensors="pt").input_features
        ids = GenerationMixin.generate(
            model,
            features,
            decoder_input_ids=torch.tensor([prefix] * len(media)),
            max_new_tokens=count,
            min_new_tokens=count,
            do_sample=False,
            num_beams=1,
        )
        assert ids.shape == torch.Size([len(media), len(prefix) + count]), ids.shape

    return generate


# ---------------------------------------------------------------- Qwen2-VL


def qwen2vl(folder: Path) -> Job:
    from mmcore_qwen2vl.testing import write_tiny_checkpoint
    from PIL import Image

    text: dict[str, Any] = {
        "hidden": 512,
        "layers": 12,
        "heads": 8,
        "kv_heads": 2,
        "intermediate": 2048,
        "vocab": 32_768,
    }
    tower: dict[str, Any] = {"depth": 10, "vision_width": 512, "vision_heads": 8, "vision_intermediate": 2048}
    write_tiny_checkpoint(folder, max_pixels=1 << 20, **text, **tower)  # 97 million parameters
    return Job(
        folder=folder,
        new_tokens=128,
        medium=lambda rng: Image.fromarray(rng.integers(0, 256, (*PICTURE, 3), np.uint8)),
        prompt=lambda n, picture: {"prompt": question(n), "multi_modal_data": {"image": [picture]}},
        reference=qwen2vl_reference,
    )


def question(number: int) -> str:
    """Questions differ in length, so that a padded batch has something to pad."""
    return QUESTION + "x" * number


def qwen2vl_reference(folder: Path) -> Generate:
    import torch
    from mmcore_qwen2vl.testing import TOKEN_IDS
    from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoTokenizer

    model: Any = AutoModelForImageTextToText.from_pretrained(folder, dtype="float32")
    processors: Any = AutoImageProcessor
    processor = processors.from_pretrained(folder)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, padding_side="left")
    placeholder = "<|image_pad|>"

    def text(number: int, rows: int) -> str:
        content = [{"type": "image"}, {"type": "text", "text": question(number)}]
        chat = [{"role": "user", "content": content}]
        text: str = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        return text.replace(placeholder, placeholder * rows)

    def generate(media: Sequence[Any], count: int) -> None:
        pictures = processor(list(media), return_tensors="pt")
        rows = (pictures["image_grid_thw"].prod(1) // 4).tolist()
        tokens = tokenizer([text(n, r) for n, r in enumerate(rows)], padding=True, return_tensors="pt")
        ids = tokens["input_ids"]
        answer = model.generate(
            **tokens,
            **pictures,
            mm_token_type_ids=(ids == TOKEN_IDS[placeholder]).int(),
            max_new_tokens=count,
            min_new_tokens=count,
            do_sample=False,
        )
        assert answer.shape == torch.Size([len(media), ids.shape[1] + count]), answer.shape

    return generate


FAMILIES: Mapping[str, Callable[[Path], Job]] = {"whisper": whisper, "qwen2vl": qwen2vl}
