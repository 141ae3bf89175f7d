"""The page encoder: a Swin transformer (Liu et al. 2021, arXiv 2103.14030) as Donut trained it.

Tokens of N pages lie one after the other, [N * T, C]. A layer gathers them window by window and puts them
back; what that takes for the pages' one size is laid out when the tower is built.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmcore.model.layers import MLP, FusedLinear, LayerNorm, Linear
from mmcore_nougat.vision import PageEncoder, Stage
from mmcore_nougat.windows import distances, window_map

EPS = 1e-5
"""Of the norms that no config sets."""
TOGETHER = 8
"""Pages at once: a form of 2560 x 1920 has 0.3 GB of half precision values in an MLP of its first stage."""


def _placed(array: np.ndarray) -> Tensor:
    """On the device of the tower that is being built."""
    return torch.from_numpy(array).to(torch.get_default_device())


class Windows(nn.Module):
    """The gathers of one `window_map`."""

    order: Tensor
    back: Tensor
    apart: Tensor
    distance: Tensor
    """int64 [L, L], rows of the bias table."""

    def __init__(self, stage: Stage, window: int, shift: int) -> None:
        super().__init__()
        arrays = window_map(stage.height, stage.width, window, shift)
        for name, array in {**arrays, "distance": distances(window)}.items():
            self.register_buffer(name, _placed(array), persistent=False)

    def gather(self, x: Tensor, pages: int) -> Tensor:
        """[N * T, C] to [W * N, L, C]: each window of all pages, then the next."""
        index = self.order[:, None] + torch.arange(pages, device=x.device)[:, None] * len(self.back)
        if self.order.numel() > len(self.back):
            index = torch.where(self.order[:, None] < len(self.back), index, len(x))
            x = F.pad(x, (0, 0, 0, 1))
        return x[index.flatten(0, 1)]

    def put_back(self, x: Tensor, pages: int) -> Tensor:
        """[W * N, L, C] to [N * T, C]."""
        window, place = self.back // x.shape[1], self.back % x.shape[1]
        page = torch.arange(pages, device=x.device)[:, None]
        return x[window * pages + page, place].flatten(0, 1)


class WindowAttention(nn.Module):
    """Attention inside each window, with a learned bias by distance."""

    def __init__(self, config: PageEncoder, stage: Stage) -> None:
        super().__init__()
        width, self._heads = stage.channels, stage.heads
        self.qkv = FusedLinear(width, dict.fromkeys("qkv", width), "qkv" if config.qkv_bias else ())
        self.out = Linear(width, width)
        self.bias_table = nn.Parameter(torch.empty((2 * config.window - 1) ** 2, stage.heads))

    def forward(self, x: Tensor, pages: int, windows: Windows) -> Tensor:
        """[N * T, C] to [N * T, C]."""
        seen = self.qkv.split(windows.gather(x, pages))
        q, k, v = (part.view(*part.shape[:2], self._heads, -1).transpose(1, 2) for part in seen)
        bias = self.bias_table[windows.distance].permute(2, 0, 1)[None]  # [1, heads, L, L]
        ends = (bias + windows.apart[:, None].to(x.dtype)).repeat_interleave(pages, dim=0)
        sizes = [len(q) - len(ends), len(ends)]
        spans = zip(*(torch.split(part, sizes) for part in (q, k, v)), (bias, ends), strict=True)
        found = [F.scaled_dot_product_attention(*span).transpose(1, 2) for span in spans if len(span[0])]
        return self.out(windows.put_back(torch.cat(found).flatten(2), pages))  # type: ignore[no-any-return]


class Block(nn.Module):
    """``x + attn(norm(x))``, then ``x + mlp(norm(x))``; [N * T, C] to [N * T, C]."""

    def __init__(self, config: PageEncoder, stage: Stage) -> None:
        super().__init__()
        self.attn_norm = LayerNorm(stage.channels, config.norm_eps)
        self.attn = WindowAttention(config, stage)
        self.mlp_norm = LayerNorm(stage.channels, config.norm_eps)
        inner = int(config.mlp_ratio * stage.channels)
        self.mlp = MLP(stage.channels, inner, config.activation, bias=True)

    def forward(self, x: Tensor, pages: int, windows: Windows) -> Tensor:
        normed, x = self.mlp_norm.add(x, self.attn(self.attn_norm(x), pages, windows))
        return x + self.mlp(normed)  # type: ignore[no-any-return]


class Merge(nn.Module):
    """Each 2 x 2 places become one, of twice the channels; what is past an odd end is zero."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.norm = LayerNorm(4 * stage.channels, EPS)
        self.reduction = Linear(4 * stage.channels, 2 * stage.channels, bias=False)
        self._map = stage.height, stage.width

    def forward(self, x: Tensor, pages: int) -> Tensor:
        height, width = self._map
        x = F.pad(x.view(pages, height, width, -1), (0, 0, 0, width % 2, 0, height % 2))
        quarters = [x[:, down::2, across::2] for across in range(2) for down in range(2)]
        return self.reduction(self.norm(torch.cat(quarters, dim=-1).flatten(0, 2)))  # type: ignore[no-any-return]


class PageStage(nn.Module):
    def __init__(self, config: PageEncoder, stage: Stage, *, merges: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(config, stage) for _ in range(stage.depth))
        self.merge = Merge(stage) if merges else None
        shift = config.window // 2 if min(stage.height, stage.width) > config.window else 0
        self.windows = nn.ModuleList(Windows(stage, config.window, s) for s in (0, shift)[: stage.depth])

    def forward(self, x: Tensor, pages: int) -> Tensor:
        for n, block in enumerate(self.blocks):
            x = block(x, pages, self.windows[n % 2])
        return x if self.merge is None else self.merge(x, pages)


class PageTower(nn.Module):
    """``forward(pages) -> [N * rows, width]``, rows in page order. See `PageEncoder.collate`."""

    normal: Tensor

    def __init__(self, config: PageEncoder) -> None:
        super().__init__()
        self.patches = Linear(3 * config.patch**2, config.channels)
        self.norm = LayerNorm(config.channels, EPS)
        stages = config.stages
        self.stages = nn.ModuleList(PageStage(config, s, merges=s is not stages[-1]) for s in stages)
        last = stages[-1].channels
        self.projection = None if last == config.row_width else Linear(last, config.row_width)
        mean, std = np.array(config.mean), np.array(config.std)
        normal = np.stack([1 / (255 * std), -mean / std]).astype(np.float32)
        self.register_buffer("normal", _placed(normal), persistent=False)
        self._patch = config.patch

    def forward(self, pages: Tensor) -> Tensor:
        return torch.cat([self._rows(some) for some in torch.split(pages, TOGETHER)])

    def _rows(self, pages: Tensor) -> Tensor:
        scale, shift = self.normal
        x = (pages.float() * scale + shift).to(self.patches.weight.dtype)
        x = self.norm(self.patches(self._cut(x)))
        for stage in self.stages:
            x = stage(x, len(pages))
        return x if self.projection is None else self.projection(x)  # type: ignore[no-any-return]

    def _cut(self, x: Tensor) -> Tensor:
        """[N, H, W, 3] to patches [N * T, 3 * patch * patch], channel by channel; zero past the end."""
        p = self._patch
        x = F.pad(x, (0, 0, 0, -x.shape[2] % p, 0, -x.shape[1] % p))
        squares = x.view(len(x), x.shape[1] // p, p, x.shape[2] // p, p, 3).permute(0, 1, 3, 5, 2, 4)
        return squares.flatten(3).flatten(0, 2)
