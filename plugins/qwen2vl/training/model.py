"""Qwen2-VL as plain tensors under their published names, and a forward pass of fixed shapes.

Nothing here depends on lengths known only at run time, so that a whole step fits in one CUDA graph.
Pictures of all kinds are one flat array of patches, rows of all kinds one flat array of tokens; only
attention looks at groups of equal length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from chat import IMAGE_PAD, VOCAB
from render import NUM_CLASSES
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

Params = dict[str, Tensor]
FASTEST = [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]  # MATH where flash cannot run (fp32)


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of the reader (5.72 million parameters)."""

    depth: int = 6
    embed_dim: int = 192
    vision_heads: int = 6
    hidden: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    intermediate: int = 384
    eps: float = 1e-6
    theta: float = 1e4
    mrope_section: tuple[int, int, int] = (8, 12, 12)


CONFIG = ModelConfig()


def parameter_shapes(c: ModelConfig = CONFIG) -> dict[str, tuple[int, ...]]:
    """Published tensor name -> shape."""
    e, h, kv = c.embed_dim, c.hidden, c.kv_heads * c.head_dim
    shapes: dict[str, tuple[int, ...]] = {"visual.patch_embed.proj.weight": (e, 3, 2, 14, 14)}
    for i in range(c.depth):
        block = f"visual.blocks.{i}."
        for name, out, into in (
            ("attn.qkv", 3 * e, e),
            ("attn.proj", e, e),
            ("mlp.fc1", 4 * e, e),
            ("mlp.fc2", e, 4 * e),
        ):
            shapes |= {f"{block}{name}.weight": (out, into), f"{block}{name}.bias": (out,)}
        for name in ("norm1", "norm2"):
            shapes |= {f"{block}{name}.weight": (e,), f"{block}{name}.bias": (e,)}
    merger = "visual.merger."
    shapes |= {f"{merger}ln_q.weight": (e,), f"{merger}ln_q.bias": (e,)}
    shapes |= {f"{merger}mlp.0.weight": (4 * e, 4 * e), f"{merger}mlp.0.bias": (4 * e,)}
    shapes |= {f"{merger}mlp.2.weight": (h, 4 * e), f"{merger}mlp.2.bias": (h,)}
    shapes |= {"model.embed_tokens.weight": (VOCAB, h), "model.norm.weight": (h,)}
    for i in range(c.layers):
        layer = f"model.layers.{i}."
        for name, out in (("q_proj", c.heads * c.head_dim), ("k_proj", kv), ("v_proj", kv)):
            shapes |= {f"{layer}self_attn.{name}.weight": (out, h), f"{layer}self_attn.{name}.bias": (out,)}
        shapes[f"{layer}self_attn.o_proj.weight"] = (h, c.heads * c.head_dim)
        shapes |= {f"{layer}mlp.{n}_proj.weight": (c.intermediate, h) for n in ("gate", "up")}
        shapes[f"{layer}mlp.down_proj.weight"] = (h, c.intermediate)
        shapes |= {f"{layer}{n}.weight": (h,) for n in ("input_layernorm", "post_attention_layernorm")}
    return shapes


AUX_SHAPES = {"aux.weight": (4 * NUM_CLASSES, CONFIG.hidden), "aux.bias": (4 * NUM_CLASSES,)}


def init_params(seed: int) -> Params:
    """fp32 parameters on the CPU: fan-in scaled, residual outputs x 0.4, embeddings 0.04."""
    generator = torch.Generator().manual_seed(seed)
    params: Params = {}
    for name, shape in (parameter_shapes() | AUX_SHAPES).items():
        if "norm" in name or "ln_q" in name:
            params[name] = torch.zeros(shape) if name.endswith("bias") else torch.ones(shape)
        elif name.endswith("bias"):
            params[name] = torch.zeros(shape)
        else:
            fan_in = torch.Size(shape[1:]).numel()
            std = 0.04 if "embed_tokens" in name else fan_in**-0.5
            if name.endswith(("attn.proj.weight", "fc2.weight", "o_proj.weight", "down_proj.weight")):
                std *= 0.4
            params[name] = torch.randn(shape, generator=generator) * std
    return params


@dataclass(frozen=True)
class Segments:
    """Consecutive stretches of a flat array: (sequences, length of each) for attention."""

    parts: tuple[tuple[int, int], ...]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        """q, k, v [N, heads, d] -> [N, heads * d], attention inside each sequence only."""
        sizes, outs = [count * length for count, length in self.parts], []
        pieces = zip(
            *(torch.split(t, sizes) for t in (q, k, v)), strict=True
        )  # split: its backward is one concatenation
        for (count, length), picked in zip(self.parts, pieces, strict=True):
            heads = [t.view(count, length, *t.shape[1:]).transpose(1, 2) for t in picked]
            with sdpa_kernel(FASTEST):
                out = F.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=causal)
            outs.append(out.transpose(1, 2).reshape(count * length, -1))
        return torch.cat(outs)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Matrix product in `dtype` (bf16 in training, fp32 in checks)."""
    return F.linear(x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding: x [N, heads, d], cos and sin [N, d/2]."""
    first, second = x.float().chunk(2, dim=-1)
    c, s = cos[:, None], sin[:, None]
    return torch.cat((first * c - second * s, second * c + first * s), -1).to(x.dtype)


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMS norm in fp32."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def vision_pre(
    x: Tensor, p: Sequence[Tensor], cos: Tensor, sin: Tensor, heads: int, dtype: torch.dtype
) -> tuple[Tensor, ...]:
    """Norm, qkv, rotation: [N, e] -> three of [N, heads, d]."""
    norm_w, norm_b, qkv_w, qkv_b = p
    y = F.layer_norm(x, x.shape[-1:], norm_w, norm_b, 1e-6)
    q, k, v = linear(y, qkv_w, qkv_b, dtype).view(x.shape[0], 3, heads, -1).unbind(1)
    return rotate(q, cos, sin), rotate(k, cos, sin), v.contiguous()


def vision_post(x: Tensor, attended: Tensor, p: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """Output projection and MLP, each added to the residual stream (fp32)."""
    proj_w, proj_b, norm_w, norm_b, fc1_w, fc1_b, fc2_w, fc2_b = p
    x = x + linear(attended, proj_w, proj_b, dtype)
    y = linear(F.layer_norm(x, x.shape[-1:], norm_w, norm_b, 1e-6), fc1_w, fc1_b, dtype)
    y = y * torch.sigmoid(1.702 * y)  # quick_gelu
    return x + linear(y, fc2_w, fc2_b, dtype)


def text_pre(
    x: Tensor, p: Sequence[Tensor], cos: Tensor, sin: Tensor, c: ModelConfig, dtype: torch.dtype
) -> tuple[Tensor, ...]:
    """Norm, q, k, v, rotation; k and v repeated for the grouped heads: three of [N, heads, d]."""
    norm_w, q_w, q_b, k_w, k_b, v_w, v_b = p
    y = rms(x, norm_w, c.eps)
    q = linear(y, q_w, q_b, dtype).view(-1, c.heads, c.head_dim)
    k = linear(y, k_w, k_b, dtype).view(-1, c.kv_heads, c.head_dim)
    v = linear(y, v_w, v_b, dtype).view(-1, c.kv_heads, c.head_dim)
    repeat = c.heads // c.kv_heads
    k, v = rotate(k, cos, sin).repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
    return rotate(q, cos, sin), k, v


def text_post(x: Tensor, attended: Tensor, p: Sequence[Tensor], c: ModelConfig, dtype: torch.dtype) -> Tensor:
    """Output projection and gated MLP, each added to the residual stream (fp32)."""
    o_w, norm_w, gate_w, up_w, down_w = p
    x = x + linear(attended, o_w, None, dtype)
    y = rms(x, norm_w, c.eps)
    y = F.silu(linear(y, gate_w, None, dtype)) * linear(y, up_w, None, dtype)
    return x + linear(y, down_w, None, dtype)


def merge(x: Tensor, p: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """Four patches to one token: [N, e] -> [N / 4, hidden]."""
    ln_w, ln_b, w0, b0, w2, b2 = p
    y = F.layer_norm(x, x.shape[-1:], ln_w, ln_b, 1e-6).view(x.shape[0] // 4, -1)
    return linear(F.gelu(linear(y, w0, b0, dtype)), w2, b2, dtype).float()


def _inverse_frequencies(dim: int, theta: float, device: torch.device) -> Tensor:
    return 1.0 / theta ** (torch.arange(0, dim, 2, dtype=torch.float, device=device) / dim)


def vision_angles(positions: Tensor, c: ModelConfig = CONFIG) -> tuple[Tensor, Tensor]:
    """int [2, N] (row, column) -> cos, sin [N, d/2]: first half by row, second half by column."""
    inv = _inverse_frequencies(c.embed_dim // c.vision_heads // 2, 1e4, positions.device)
    freqs = torch.cat([positions[i, :, None].float() * inv for i in range(2)], -1)
    return freqs.cos(), freqs.sin()


def text_angles(axes: Tensor, c: ModelConfig = CONFIG) -> tuple[Tensor, Tensor]:
    """int [3, N] -> cos, sin [N, d/2], each stretch of frequencies by its own axis (M-RoPE)."""
    inv = _inverse_frequencies(c.head_dim, c.theta, axes.device)
    pieces = torch.split(inv, list(c.mrope_section))
    freqs = torch.cat([axes[i, :, None].float() * piece for i, piece in enumerate(pieces)], -1)
    return freqs.cos(), freqs.sin()


def _pick(params: Params, prefix: str, names: str) -> list[Tensor]:
    return [params[prefix + n] for n in names.split()]


class Reader:
    """The forward pass over the caller's parameters; `compiled` fuses the regions between attentions."""

    def __init__(
        self, params: Params, dtype: torch.dtype, compiled: bool = False, c: ModelConfig = CONFIG
    ) -> None:
        self.params, self.dtype, self.c = params, dtype, c
        wrap: Callable[[Any], Any] = partial(torch.compile, dynamic=False) if compiled else lambda f: f
        self.vision_pre, self.vision_post = wrap(vision_pre), wrap(vision_post)
        self.text_pre, self.text_post = wrap(text_pre), wrap(text_post)
        self.merge, self.rms = wrap(merge), wrap(rms)

    def see(self, patches: Tensor, positions: Tensor, segments: Segments) -> Tensor:
        """patches [N, 588] (one frame; the second is the same), positions [2, N] -> [N / 4, hidden]."""
        p, c = self.params, self.c
        weight = p["visual.patch_embed.proj.weight"].sum(2).flatten(1)
        x = linear(patches, weight, None, self.dtype).float()
        cos, sin = vision_angles(positions, c)
        for i in range(c.depth):
            pre = _pick(p, f"visual.blocks.{i}.", "norm1.weight norm1.bias attn.qkv.weight attn.qkv.bias")
            q, k, v = self.vision_pre(x, pre, cos, sin, c.vision_heads, self.dtype)
            post = _pick(
                p,
                f"visual.blocks.{i}.",
                "attn.proj.weight attn.proj.bias norm2.weight norm2.bias "
                "mlp.fc1.weight mlp.fc1.bias mlp.fc2.weight mlp.fc2.bias",
            )
            x = self.vision_post(x, segments.attend(q, k, v, causal=False), post, self.dtype)
        names = "ln_q.weight ln_q.bias mlp.0.weight mlp.0.bias mlp.2.weight mlp.2.bias"
        return self.merge(x, _pick(p, "visual.merger.", names), self.dtype)  # type: ignore[no-any-return]

    def embed(self, ids: Tensor, features: Tensor, destinations: Tensor) -> Tensor:
        """ids [N], features [M, hidden] and their places [M] -> [N, hidden] (lookup as a product)."""
        table = self.params["model.embed_tokens.weight"]
        one_hot = (ids[:, None] == torch.arange(VOCAB, device=ids.device)).to(self.dtype)
        x = (one_hot @ table.to(self.dtype)).float()
        return x.index_copy(0, destinations, features)

    def read(self, x: Tensor, axes: Tensor, segments: Segments) -> Tensor:
        """x [N, hidden], axes [3, N] -> logits [N, vocabulary] (fp32)."""
        p, c = self.params, self.c
        cos, sin = text_angles(axes, c)
        for i in range(c.layers):
            layer, names = (
                f"model.layers.{i}.",
                "q_proj.weight q_proj.bias k_proj.weight k_proj.bias v_proj.weight v_proj.bias",
            )
            pre = [p[layer + "input_layernorm.weight"], *_pick(p, layer + "self_attn.", names)]
            q, k, v = self.text_pre(x, pre, cos, sin, c, self.dtype)
            post = _pick(
                p,
                layer,
                "self_attn.o_proj.weight post_attention_layernorm.weight mlp.gate_proj.weight "
                "mlp.up_proj.weight mlp.down_proj.weight",
            )
            x = self.text_post(x, segments.attend(q, k, v, causal=True), post, c, self.dtype)
        x = self.rms(x, p["model.norm.weight"], c.eps)
        return linear(x, p["model.embed_tokens.weight"], None, self.dtype).float()


def picture_places(ids: Tensor, tokens: int) -> Tensor:
    """ids [rows, L] with `tokens` picture tokens a row -> their places [rows, tokens], in order."""
    rows, length = ids.shape
    is_picture = ids == IMAGE_PAD
    rank = torch.where(is_picture, is_picture.long().cumsum(1) - 1, tokens)
    places = torch.zeros(rows, tokens + 1, dtype=torch.long, device=ids.device)
    places.scatter_(1, rank, torch.arange(length, device=ids.device).expand(rows, -1))
    return places[:, :tokens]
