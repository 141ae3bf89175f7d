"""Weights: each tensor of a checkpoint has one place, each parameter one source, whole or in parts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from mmcore.adapter import IgnoredWeight, WeightRule
from mmcore.inputs.checkpoint import Checkpoint
from mmcore.model.layers import FusedLinear
from mmcore.model.weights import Model, build_model, digits_pattern, folder_prefixes, load_weights
from mmcore.testing.law import law
from mmcore.testing.subject import Subject
from mmcore.testing.tensor_parallel import cut, put_together
from mmcore.testing.tiny import save_checkpoint


def tensors_of(subject: Subject) -> dict[str, Tensor]:
    """The whole checkpoint."""
    files = subject.checkpoint.weight_files()
    return {
        prefix + name: tensor
        for file, prefix in zip(files, folder_prefixes(files), strict=True)
        for name, tensor in load_file(file).items()
    }


def names_of(subject: Subject) -> list[str]:
    names: list[str] = []
    files = subject.checkpoint.weight_files()
    for file, prefix in zip(files, folder_prefixes(files), strict=True):
        with safe_open(file, framework="pt") as tensors:
            names += [prefix + name for name in tensors.keys()]  # noqa: SIM118  (safe_open is no mapping)
    return sorted(names)


def _loaded(subject: Subject, files: tuple[Path, ...]) -> Model:
    model = build_model(subject.adapter, torch.float32, torch.device("cpu"))
    for name, parameter in model.named_parameters():
        owner, _, leaf = name.rpartition(".")
        module = model.get_submodule(owner)
        parts = module.shards(leaf).values() if isinstance(module, FusedLinear) else (slice(None),)
        for rows in parts:  # others, a bias that a projection lacks, are zero by themselves
            parameter.data[rows] = torch.nan
    load_weights(model, subject.adapter, files)
    return model


@law(cost=2, shards=lambda s: st.integers(1, 5))
def every_tensor_has_one_place(subject: Subject, shards: int) -> None:
    """Each tensor is used once or ignored with a reason, each parameter filled once, from any files."""
    adapter = subject.adapter
    for ignored in adapter.ignored:
        assert ignored.reason.strip(), f"{ignored.source} is ignored without a reason"
    places, nowhere = _patterns(adapter.weights), _patterns(adapter.ignored)
    for name in names_of(subject):
        both = _is_of(name, places) and _is_of(name, nowhere)
        assert not both, f"{name} is ignored, though a rule has a place for it"
    model = _loaded(subject, subject.checkpoint.weight_files())
    for name, parameter in model.named_parameters():
        empty = int(parameter.isnan().sum())
        assert not empty, f"{name}: {empty} of {parameter.numel()} values are filled by no tensor"
    for (name, one), other in zip(model.named_parameters(), _resharded(subject, shards), strict=True):
        assert torch.equal(one, other), f"{name} differs when the checkpoint has {shards} files"


def _patterns(rules: Sequence[WeightRule | IgnoredWeight]) -> list[re.Pattern[str]]:
    return [digits_pattern(rule.source) for rule in rules]


def _is_of(name: str, patterns: Sequence[re.Pattern[str]]) -> bool:
    return any(pattern.fullmatch(name) for pattern in patterns)


def _resharded(subject: Subject, shards: int) -> list[nn.Parameter]:
    """Filled from so many files, tensors in another order."""
    tensors = tensors_of(subject)
    backwards = {name: tensors[name] for name in sorted(tensors, reverse=True)}
    with TemporaryDirectory() as folder:
        files = Checkpoint(save_checkpoint(Path(folder), backwards, {}, shards=shards)).weight_files()
        return list(_loaded(subject, files).parameters())


def decoder_sources(subject: Subject) -> Iterator[tuple[str, WeightRule, str]]:
    """(tensor, rule, parameter) of all that fills the decoder."""
    nowhere = _patterns(subject.adapter.ignored)
    decoders = [rule for rule in subject.adapter.weights if rule.target.startswith("decoder.")]
    rules = list(zip(decoders, _patterns(decoders), strict=True))
    for name in names_of(subject):
        if _is_of(name, nowhere):
            continue
        for rule, pattern in rules:
            if found := pattern.fullmatch(name):
                yield name, rule, rule.target.format(*found.groups())


@law(needs=("every_tensor_has_one_place",), ranks=lambda s: st.sampled_from([2, 4]))
def tensor_parallel_parts_make_the_whole(subject: Subject, ranks: int) -> None:
    """Each rank reads its slice of each decoder tensor by its rule; put together they are the parameter."""
    tensors = tensors_of(subject)
    for name, rule, target in decoder_sources(subject):
        owner, _, leaf = target.rpartition(".")
        module = subject.model.get_submodule(owner)
        parts = [cut(tensors[name], rule, target, module, rank, ranks) for rank in range(ranks)]
        whole = subject.model.get_parameter(target).data
        if isinstance(module, FusedLinear) and rule.shard:
            whole = whole[module.shards(leaf)[rule.shard]]
        same = torch.equal(put_together(parts, target).reshape(-1), whole.reshape(-1))
        assert same, f"{name} cut for {ranks} ranks and put together is not {target}"
