"""A small random Whisper checkpoint in hub layout, for tests."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from mmcore.testing.tiny import Shape, byte_tokenizer, fan_in_weights, save_checkpoint
from mmcore_whisper.hub_files import hub_files
from mmcore_whisper.languages import CODES

Variant = Literal["multilingual", "english"]

ROWS_A_SECOND = 50
_SPECIAL = ("<|startoftranscript|>", "<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>")


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyShape:
    """Sizes of a tiny checkpoint. The window lasts ``rows / 50`` s, whole seconds."""

    width: int = 32
    heads: int = 2
    encoder_layers: int = 2
    decoder_layers: int = 2
    intermediate: int = 64
    mels: int = 80
    rows: int = ROWS_A_SECOND
    max_length: int = 64
    shards: int = 1


def write_tiny_checkpoint(
    folder: Path | str, variant: Variant = "multilingual", seed: int = 0, **overrides: Any
) -> Path:
    """Write the checkpoint and give its folder. ``overrides`` are fields of `TinyShape`."""
    shape = replace(TinyShape(), **overrides)
    tokenizer = tiny_tokenizer(variant, shape.rows)
    ids = {token["content"]: int(token["id"]) for token in tokenizer["added_tokens"]}
    unnamed = 0 if variant == "multilingual" else shape.rows + 1
    weights = fan_in_weights(tensor_shapes(shape, vocab=256 + len(ids) + unnamed), seed)
    weights["model.encoder.embed_positions.weight"] = sinusoids(shape.rows, shape.width)
    _listen(weights)
    stored = {
        "suppress_ids": [1, 2, 7, 8, 9, *(ids[token] for token in _SPECIAL)],
        "suppress_ids_begin": [ord(" "), ids["<|endoftext|>"]],
        "alignment_heads": [[shape.decoder_layers - 1, 0]],
    }
    files = hub_files(
        {name: weight.numpy() for name, weight in weights.items()},
        tokenizer,
        stored,
        heads={"encoder": shape.heads, "decoder": shape.heads},
        multilingual=variant == "multilingual",
    )
    return save_checkpoint(Path(folder), weights, {**files, "tokenizer.json": tokenizer}, shards=shape.shards)


def tiny_tokenizer(variant: Variant, rows: int) -> dict[str, Any]:
    """``tokenizer.json``: one token a byte, then Whisper's special tokens in its id order.

    Like the published files it has timestamps that are not special (if English-only none, though the
    vocabulary goes on), and a stale post-processor that leaves language and task out.
    """
    start, end, none = "<|startoftranscript|>", "<|endoftext|>", "<|notimestamps|>"
    languages = [f"<|{code}|>" for code in CODES[:99]]
    silence = "<|nospeech|>" if variant == "multilingual" else "<|nocaptions|>"
    timestamps = [f"<|{step / ROWS_A_SECOND:.2f}|>" for step in range(rows + 1)]
    special = [end, start, *languages, *_SPECIAL[1:], silence, none]
    tokenizer = dict(byte_tokenizer(special + (timestamps if variant == "multilingual" else [])))
    for token in tokenizer["added_tokens"][len(special) :]:
        token |= {"special": False, "normalized": True}
    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    tokenizer["post_processor"] = _stale_template(start, none, end, ids)
    return tokenizer


def _stale_template(start: str, none: str, end: str, ids: Mapping[str, int]) -> dict[str, Any]:
    def piece(token: str) -> dict[str, Any]:
        return {"SpecialToken": {"id": token, "type_id": 0}}

    sequences: list[dict[str, Any]] = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
    return {
        "type": "TemplateProcessing",
        "single": [piece(start), piece(none), sequences[0], piece(end)],
        "pair": [piece(start), piece(none), *sequences, piece(end)],
        "special_tokens": {t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in (start, none, end)},
    }


def _listen(weights: dict[str, Tensor]) -> None:
    """Sharper attention and larger positions: a tied head would otherwise repeat one token."""
    weights["model.decoder.embed_positions.weight"] *= 2.0
    for name, weight in weights.items():
        if name.endswith("q_proj.weight"):
            weight *= 4.0


def sinusoids(rows: int, width: int) -> Tensor:
    """The encoder's positions [rows, width]: sines, then cosines, of a geometric series of rates."""
    rates = torch.exp(-math.log(10_000.0) / (width // 2 - 1) * torch.arange(width // 2))
    angles = torch.arange(rows)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def tensor_shapes(shape: TinyShape, vocab: int) -> dict[str, Shape]:
    """Every tensor of the checkpoint and its shape."""
    width = shape.width
    shapes: dict[str, Shape] = {
        "model.encoder.conv1.weight": (width, shape.mels, 3),
        "model.encoder.conv1.bias": (width,),
        "model.encoder.conv2.weight": (width, width, 3),
        "model.encoder.conv2.bias": (width,),
        "model.encoder.embed_positions.weight": (shape.rows, width),
        "model.decoder.embed_tokens.weight": (vocab, width),
        "model.decoder.embed_positions.weight": (shape.max_length, width),
        **_norm("model.encoder.layer_norm", width),
        **_norm("model.decoder.layer_norm", width),
    }
    for n in range(shape.encoder_layers):
        shapes |= _layer(f"model.encoder.layers.{n}", shape, cross=False)
    for n in range(shape.decoder_layers):
        shapes |= _layer(f"model.decoder.layers.{n}", shape, cross=True)
    return shapes


def _layer(name: str, shape: TinyShape, cross: bool) -> dict[str, Shape]:
    width, inner = shape.width, shape.intermediate
    shapes = _norm(f"{name}.final_layer_norm", width)
    shapes |= _linear(f"{name}.fc1", width, inner) | _linear(f"{name}.fc2", inner, width)
    for attention in ("self_attn", "encoder_attn") if cross else ("self_attn",):
        shapes |= _norm(f"{name}.{attention}_layer_norm", width)
        for projection in ("q_proj", "k_proj", "v_proj", "out_proj"):
            shapes |= _linear(f"{name}.{attention}.{projection}", width, width)
        del shapes[f"{name}.{attention}.k_proj.bias"]
    return shapes


def _linear(name: str, inputs: int, outputs: int) -> dict[str, Shape]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _norm(name: str, width: int) -> dict[str, Shape]:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}
