"""Qwen2-VL's picture preprocessing in numpy and Pillow, as transformers' image processor does it."""

from __future__ import annotations

import math

import numpy as np
from PIL import Image

FACTOR = 28
PATCH = 14
MIN_PIXELS = 3136
MAX_PIXELS = 50176
MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)


def smart_resize(height: int, width: int) -> tuple[int, int]:
    """The processor's target size: multiples of 28 whose area lies between the two bounds."""
    if max(height, width) / min(height, width) > 200:
        raise ValueError(f"aspect ratio above 200: {height}x{width}")
    new_h, new_w = round(height / FACTOR) * FACTOR, round(width / FACTOR) * FACTOR
    if new_h * new_w > MAX_PIXELS:
        beta = math.sqrt(height * width / MAX_PIXELS)
        new_h = max(FACTOR, math.floor(height / beta / FACTOR) * FACTOR)
        new_w = max(FACTOR, math.floor(width / beta / FACTOR) * FACTOR)
    elif new_h * new_w < MIN_PIXELS:
        beta = math.sqrt(MIN_PIXELS / (height * width))
        new_h = math.ceil(height * beta / FACTOR) * FACTOR
        new_w = math.ceil(width * beta / FACTOR) * FACTOR
    return new_h, new_w


def resize_like_processor(image: Image.Image) -> np.ndarray:
    """RGB picture -> uint8 [H, W, 3] in the processor's target size (bicubic)."""
    height, width = smart_resize(image.height, image.width)
    rgb = image.convert("RGB")
    if (height, width) != (rgb.height, rgb.width):
        rgb = rgb.resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(rgb)


def patchify(pixels: np.ndarray) -> np.ndarray:
    """uint8 [H, W, 3] -> float32 [H/14 * W/14, 1176], normalised, patches in 2x2 merge order."""
    height, width, _ = pixels.shape
    scaled = (pixels.astype(np.float32) / 255.0 - np.array(MEAN, np.float32)) / np.array(STD, np.float32)
    blocks = scaled.transpose(2, 0, 1).reshape(3, height // FACTOR, 2, PATCH, width // FACTOR, 2, PATCH)
    blocks = blocks.transpose(1, 4, 2, 5, 0, 3, 6)  # [gh/2, gw/2, 2, 2, C, 14, 14]
    blocks = np.broadcast_to(blocks[:, :, :, :, :, None], (*blocks.shape[:5], 2, PATCH, PATCH))
    return np.ascontiguousarray(blocks).reshape(-1, 1176)


def patch_positions(height: int, width: int) -> np.ndarray:
    """int64 [2, patches]: the row and column of each patch, in the order of `patchify`."""
    grid = np.indices((height // PATCH, width // PATCH))  # [2, gh, gw]
    grid = grid.reshape(2, height // FACTOR, 2, width // FACTOR, 2).transpose(0, 1, 3, 2, 4)
    return np.ascontiguousarray(grid).reshape(2, -1).astype(np.int64)
