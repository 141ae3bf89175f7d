"""Colour, gradient, blur, noise and JPEG on the GPU: glyph masks become normalised patches."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor
from vision import MEAN, PATCH, STD

JPEG_SHARE = 0.3
_LUMA = (
    16,
    11,
    10,
    16,
    24,
    40,
    51,
    61,
    12,
    12,
    14,
    19,
    26,
    58,
    60,
    55,
    14,
    13,
    16,
    24,
    40,
    57,
    69,
    56,
    14,
    17,
    22,
    29,
    51,
    87,
    80,
    62,
    18,
    22,
    37,
    56,
    68,
    109,
    103,
    77,
    24,
    35,
    55,
    64,
    81,
    104,
    113,
    92,
    49,
    64,
    78,
    87,
    103,
    121,
    120,
    101,
    72,
    92,
    95,
    98,
    112,
    100,
    103,
    99,
)
_CHROMA = (
    17,
    18,
    24,
    47,
    99,
    99,
    99,
    99,
    18,
    21,
    26,
    66,
    99,
    99,
    99,
    99,
    24,
    26,
    56,
    99,
    99,
    99,
    99,
    99,
    47,
    66,
    99,
    99,
    *[99] * 36,
)
_TO_YCC = ((0.299, 0.587, 0.114), (-0.168736, -0.331264, 0.5), (0.5, -0.418688, -0.081312))
_TO_RGB = ((1.0, 0.0, 1.402), (1.0, -0.344136, -0.714136), (1.0, 1.772, 0.0))


class Augmenter:
    """Holds the constants on the device; every method is free of host synchronisation.

    Pixels are fp16 on a GPU: steps of 1/8 at most, well below the rounding to 8 bits that follows.
    """

    def __init__(self, device: torch.device) -> None:
        row = torch.arange(8, dtype=torch.float64)
        dct = torch.cos(math.pi * (2 * row[None] + 1) * row[:, None] / 16) * 0.5
        dct[0] *= math.sqrt(0.5)
        self.dtype = torch.float16 if device.type == "cuda" else torch.float32
        self.dct = torch.kron(dct, dct).to(device, self.dtype)  # [64, 64]
        self.tables = torch.tensor([_LUMA, _CHROMA], dtype=torch.float, device=device)
        self.to_ycc = torch.tensor(_TO_YCC, dtype=self.dtype, device=device)
        self.to_rgb = torch.tensor(_TO_RGB, dtype=self.dtype, device=device)
        self.mean = torch.tensor(MEAN, dtype=self.dtype, device=device).view(3, 1, 1) * 255
        self.std = torch.tensor(STD, dtype=self.dtype, device=device).view(3, 1, 1) * 255
        self.device = device

    def lines(self, masks: Tensor) -> Tensor:
        """Glyph masks uint8 [n, H, W] -> patches bf16 [n, H/14 * W/14, 588]."""
        n, height, width = masks.shape
        mask = masks.to(self.dtype)[:, None] / 255  # [n, 1, H, W]
        empty = mask.amax((1, 2, 3), keepdim=True) == 0
        soft = torch.where(self._rand(n) < 0.4, self._rand(n), 0)
        mask = mask + soft * (F.avg_pool2d(mask, 3, 1, 1) - mask)
        back, ink, gap = self._colours(n)
        angle, strength = self._rand(n) * 2 * math.pi, torch.where(self._rand(n) < 0.4, self._rand(n), 0)
        across = torch.linspace(-1, 1, width, dtype=self.dtype, device=self.device)
        down = torch.linspace(-1, 1, height, dtype=self.dtype, device=self.device)[:, None]
        back = back + 0.3 * gap * strength * (angle.cos() * across + angle.sin() * down)
        image = back + mask * (ink - back)
        noise = torch.where(self._rand(n) < 0.5, self._rand(n), 0)
        noise = noise * torch.where(empty, 60.0, 0.12 * gap)
        image = image + noise * torch.randn(n, 3, height, width, dtype=self.dtype, device=self.device)
        return self.patches(self._jpeg_some(image.round().clamp(0, 255)))

    def shapes(self, images: Tensor) -> Tensor:
        """easy-vqa pictures uint8 [n, 56, 56, 3] -> patches bf16 [n, 16, 588]: mirror, shift, tint, noise."""
        n, side = images.shape[:2]
        image = images.permute(0, 3, 1, 2).to(self.dtype)
        image = torch.where(self._rand(n) < 0.5, image.flip(3), image)
        steps = torch.arange(side, device=self.device)
        for dim in (2, 3):
            shift = torch.randint(-3, 4, (n, 1), device=self.device)
            index = (steps + shift).clamp(0, side - 1)
            view = index.view(n, 1, side, 1) if dim == 2 else index.view(n, 1, 1, side)
            image = image.gather(dim, view.expand(n, 3, side, side))
        image = image + 6 * (torch.rand(n, 3, 1, 1, dtype=self.dtype, device=self.device) * 2 - 1)
        noise = torch.where(self._rand(n) < 0.5, self._rand(n) * 5, 0)
        image = image + noise * torch.randn(n, 3, side, side, dtype=self.dtype, device=self.device)
        return self.patches(self._jpeg_some(image.round().clamp(0, 255), 0.15))

    def patches(self, image: Tensor) -> Tensor:
        """[n, 3, H, W] in 0..255 -> normalised bf16 [n, H/14 * W/14, 588] in 2x2 merge order."""
        n, _, height, width = image.shape
        image = ((image - self.mean) / self.std).to(torch.bfloat16)
        blocks = image.view(n, 3, height // 28, 2, PATCH, width // 28, 2, PATCH).permute(
            0, 2, 5, 3, 6, 1, 4, 7
        )
        return blocks.reshape(n, -1, 3 * PATCH * PATCH)

    def _rand(self, n: int) -> Tensor:
        return torch.rand(n, 1, 1, 1, dtype=self.dtype, device=self.device)

    def _colours(self, n: int) -> tuple[Tensor, Tensor, Tensor]:
        """Background, ink [n, 3, 1, 1] and their distance in luminance (at least 90)."""
        back, ink = (torch.rand(n, 3, 1, 1, dtype=self.dtype, device=self.device) * 255 for _ in range(2))
        extreme, style = self._rand(n) * 35, self._rand(n)
        light = self._luminance(back) > 128
        close = (self._luminance(back) - self._luminance(ink)).abs() < 90
        ink = torch.where(close, torch.where(light, extreme, 255 - extreme), ink)
        plain, inverse = style < 0.3, style > 0.92
        zero = torch.where(self._rand(n) < 0.5, 0, extreme)
        back = torch.where(plain, 255 - zero / 2, torch.where(inverse, zero, back))
        ink = torch.where(plain, zero, torch.where(inverse, 255 - zero, ink))
        return back, ink, (self._luminance(back) - self._luminance(ink)).abs()

    def _luminance(self, colour: Tensor) -> Tensor:
        return (colour * self.to_ycc[0].view(1, 3, 1, 1)).sum(1, keepdim=True)

    def _jpeg_some(self, image: Tensor, share: float = JPEG_SHARE) -> Tensor:
        count = round(image.shape[0] * share)
        return torch.cat((self.jpeg(image[:count]), image[count:])) if count else image

    def jpeg(self, image: Tensor, quality: Tensor | None = None) -> Tensor:
        """[n, 3, H, W] in 0..255 through quantised 8x8 cosine blocks, colour at half resolution (4:2:0)."""
        n, _, height, width = image.shape
        if quality is None:
            quality = torch.rand(n, 1, device=self.device) * 60 + 38
        scale = torch.where(quality < 50, 5000 / quality, 200 - 2 * quality)
        tables = (
            ((self.tables[:, None] * scale + 50) / 100).floor().clamp(1, 255).to(self.dtype)
        )  # [2, n, 64]
        padded = F.pad(image, (0, -width % 16, 0, -height % 16), mode="replicate")
        full_h, full_w = padded.shape[2:]
        ycc = (self.to_ycc @ padded.flatten(2)).view(n, 3, full_h, full_w)
        luma = self._quantise(ycc[:, :1] - 128, tables[0]) + 128
        colour = self._quantise(F.avg_pool2d(ycc[:, 1:], 2), tables[1])
        colour = F.interpolate(colour, scale_factor=2, mode="bilinear")
        back = (self.to_rgb @ torch.cat((luma, colour), 1).flatten(2)).view(n, 3, full_h, full_w)
        return back[:, :, :height, :width].round().clamp(0, 255)

    def _quantise(self, plane: Tensor, table: Tensor) -> Tensor:
        n, channels, height, width = plane.shape
        blocks = plane.view(n, channels, height // 8, 8, width // 8, 8).transpose(3, 4).reshape(n, -1, 64)
        coefficients = (blocks @ self.dct.T / table[:, None]).round() * table[:, None]
        blocks = (coefficients @ self.dct).view(n, channels, height // 8, width // 8, 8, 8)
        return blocks.transpose(3, 4).reshape(n, channels, height, width)
