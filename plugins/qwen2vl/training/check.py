"""Checks the training code against transformers: picture patches, positions, tokens, logits.

python check.py --reader READER
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from chat import IMAGE_PAD, SPECIALS, Turn, build_row, pack
from model import Reader, Segments, picture_places
from PIL import Image
from safetensors.torch import load_file
from vision import MAX_PIXELS, MIN_PIXELS, patch_positions, patchify, resize_like_processor

SHAPES = ((56, 224), (84, 112))


def check_processor(rng: np.random.Generator) -> float:
    """Largest difference of patches from transformers' image processor, resized shapes among them."""
    from transformers import Qwen2VLImageProcessorPil

    processor: Any = Qwen2VLImageProcessorPil(min_pixels=MIN_PIXELS, max_pixels=MAX_PIXELS)
    worst = 0.0
    for height, width in ((56, 224), (64, 64), (61, 300), (41, 90), (500, 500), (28, 28)):
        image = Image.fromarray(rng.integers(0, 255, (height, width, 3), dtype=np.uint8))
        want = processor(images=[image], return_tensors="np")["pixel_values"]
        worst = max(worst, float(np.abs(want - patchify(resize_like_processor(image))).max()))
    return worst


def check_tokens(reader: Path) -> None:
    """AutoTokenizer gives bytes and specials the ids that training used."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(reader)
    ids = [tokenizer.convert_tokens_to_ids(token) for token in SPECIALS]
    text = "What doesn't  it say?\n12 é€"
    if ids != list(range(256, 264)) or tokenizer(text).input_ids != list(text.encode()):
        raise AssertionError(f"the tokenizer's ids are not those of the training: {ids}")


@torch.no_grad()
def check_logits(reader: Path, rng: np.random.Generator) -> float:
    """Largest difference of logits over a chat with two pictures and two turns (fp32)."""
    from transformers import Qwen2VLForConditionalGeneration

    family: Any = Qwen2VLForConditionalGeneration
    model, info = family.from_pretrained(
        reader, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    if info["missing_keys"] or info["unexpected_keys"]:
        raise AssertionError(f"keys differ: {info}")
    row = build_row(
        "You are helpful.", [Turn((SHAPES[0], "Q é", SHAPES[1], "R"), "abc"), Turn(("again",), "xyz")]
    )
    packed, count = pack(row, 160), len(row.ids)
    if packed is None:
        raise AssertionError("the row does not fit")
    ids, axes = torch.tensor(row.ids)[None], torch.from_numpy(packed[1][:, :count].astype(np.int64))
    grids = torch.tensor([[1, h // 14, w // 14] for h, w in SHAPES])
    kinds = (ids == IMAGE_PAD).int()
    if not torch.equal(model.model.get_rope_index(ids, kinds, grids)[0][:, 0], axes):
        raise AssertionError("positions differ")
    patches = np.concatenate([patchify(rng.integers(0, 255, (h, w, 3), dtype=np.uint8)) for h, w in SHAPES])
    given = {"pixel_values": torch.from_numpy(patches), "image_grid_thw": grids, "mm_token_type_ids": kinds}
    want = model(input_ids=ids, **given).logits[0]
    ours = Reader({n: t.float() for n, t in load_file(reader / "model.safetensors").items()}, torch.float32)
    frame = torch.from_numpy(patches.reshape(-1, 3, 2, 196)[:, :, 0].reshape(-1, 588))
    places = torch.from_numpy(np.concatenate([patch_positions(*shape) for shape in SHAPES], 1))
    features = ours.see(frame, places, Segments(tuple((1, h * w // 196) for h, w in SHAPES)))
    x = ours.embed(ids[0], features, picture_places(ids, features.shape[0])[0])
    return float((ours.read(x, axes, Segments(((1, count),))) - want).abs().max() / want.abs().max())


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reader", type=Path, required=True)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    check_tokens(args.reader)
    print(f"patches differ by {check_processor(rng):.1e} at most")
    print(f"logits differ by {check_logits(args.reader, rng):.1e} of the largest")


if __name__ == "__main__":
    main()
