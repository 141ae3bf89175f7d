"""Tiny random checkpoints in hub layout: real shapes and files, weights that give lively logits."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmcore.adapter import Adapter, AdapterFactory
from mmcore.errors import WeightError
from mmcore.inputs.checkpoint import Checkpoint
from mmcore.model.weights import build_model, digits_pattern, parameter_parts

Shape = tuple[int, ...]


def byte_tokenizer(special_tokens: Sequence[str]) -> Mapping[str, Any]:
    """``tokenizer.json`` of a byte-level BPE without merges: one token a byte, then the special tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in special_tokens]
    )
    return json.loads(tokenizer.to_str())  # type: ignore[no-any-return]


def fan_in_weights(
    shapes: Mapping[str, Shape], seed: int, gains: Mapping[str, float] | None = None
) -> dict[str, Tensor]:
    """Random float32 tensors by name, each from its own stream of ``seed``.

    Matrices are scaled by fan-in, so that activations keep their size from layer to layer and greedy output
    does not collapse onto one token; an embedding too, so that a tied head does not just repeat its input.
    Norms lie around 1, biases around 0. ``gains[part]`` multiplies tensors whose name contains ``part``: a
    larger query sharpens attention, so that the next token depends on more than the last one.
    """
    weights = {}
    for name, shape in shapes.items():
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode(), seed))
        gain = math.prod(value for part, value in (gains or {}).items() if part in name)
        weights[name] = gain * _scale(name, torch.randn(shape, generator=generator))
    return weights


def _scale(name: str, noise: Tensor) -> Tensor:
    if noise.ndim == 1:
        return 0.1 * noise if name.endswith("bias") else 1.0 + 0.1 * noise
    return noise / math.sqrt(math.prod(noise.shape[1:]))


def tensor_shapes(adapter: Adapter, shapes: Mapping[str, Shape] | None = None) -> dict[str, Shape]:
    """The checkpoint tensors that fill this adapter's model, each under the first rule that names it.

    ``shapes`` tells those that are stored otherwise than their parameter (a convolution that fills a linear).
    """
    model = build_model(adapter, torch.float32, torch.device("meta"))
    empty = {(name, shard): shape for name, shard, shape in parameter_parts(model)}
    found: dict[str, Shape] = {}
    for rule in adapter.weights:
        pattern = digits_pattern(rule.target)
        for name, shard in tuple(empty):
            match = pattern.fullmatch(name)
            if match and rule.shard in (shard, ""):
                source = rule.source.format(*match.groups())
                whole = model.get_parameter(name).shape
                shape = empty.pop((name, shard)) if rule.shard else tuple(whole)
                empty.pop((name, shard), None)
                found[source] = (shapes or {}).get(source, shape)
    for name, shard in sorted(empty):
        part = f"shard {shard!r} of {name}" if shard else name
        raise WeightError(f"no weight rule of adapter {adapter.name!r} fills {part}: add one to its weights")
    return found


def fill_checkpoint(
    folder: Path,
    factory: AdapterFactory,
    files: Mapping[str, Any],
    *,
    seed: int = 0,
    shapes: Mapping[str, Shape] | None = None,
    gains: Mapping[str, float] | None = None,
    shards: int = 1,
    folders: Sequence[str] = (),
) -> Path:
    """Write ``files`` and random weights for every parameter of the adapter that they describe.

    ``shapes`` as in `tensor_shapes`, ``seed`` and ``gains`` as in `fan_in_weights`; tensors whose names begin
    with one of ``folders`` go into files of that sub-folder, without its name.
    """
    write_files(folder, files)
    checkpoint = Checkpoint(folder)
    adapter = factory.from_config(checkpoint.config, checkpoint)
    weights = fan_in_weights(tensor_shapes(adapter, shapes), seed, gains)
    for part in folders:
        inside = {name: weights.pop(name) for name in tuple(weights) if name.startswith(f"{part}.")}
        save_checkpoint(folder / part, {n.removeprefix(f"{part}."): w for n, w in inside.items()}, {})
    if folders:
        return folder
    return save_checkpoint(folder, weights, files, shards=shards)


def save_checkpoint(
    folder: Path, weights: Mapping[str, Tensor], files: Mapping[str, Any], *, shards: int = 1
) -> Path:
    """Write ``weights`` as safetensors, in ``shards`` files and an index, and ``files``. Gives ``folder``."""
    from safetensors.torch import save_file

    write_files(folder, files)
    groups = [list(weights)[n::shards] for n in range(shards)]
    places: dict[str, str] = {}
    for number, names in enumerate(groups, start=1):
        file = "model.safetensors" if shards == 1 else f"model-{number:05}-of-{shards:05}.safetensors"
        save_file({name: weights[name] for name in names}, folder / file, metadata={"format": "pt"})
        places |= dict.fromkeys(names, file)
    if shards > 1:
        index = {"metadata": {}, "weight_map": places}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return folder


def write_files(folder: Path, files: Mapping[str, Any]) -> None:
    """By name: a string as it is, anything else as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content, indent=2)
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
