"""Builds a model and fills it from safetensors, strictly: each tensor is used once or ignored with a
reason, each parameter is filled once."""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path

import torch
from torch import Tensor, nn

from mmcore.adapter import Adapter, IgnoredWeight
from mmcore.errors import CheckpointError, MMCoreError, WeightError
from mmcore.model.decoder import Decoder
from mmcore.model.layers import FusedLinear
from mmcore.model.weight_copy import WeightCopier
from mmcore.model.weight_file import StoredTensor, same_values, stored_tensors


class Model(nn.Module):
    """What a checkpoint's weights fill: decoder, encoder and, in some families, the context stage."""

    def __init__(self, adapter: Adapter) -> None:
        super().__init__()
        self.decoder = Decoder(adapter.decoder)
        self.encoder = adapter.encoder.build()
        self.context = None if adapter.context is None else adapter.context.build()
        for shared in adapter.shared:
            owner, _, leaf = shared.target.rpartition(".")
            setattr(self.get_submodule(owner), leaf, self.get_parameter(shared.source))


def build_model(adapter: Adapter, dtype: torch.dtype, device: torch.device) -> Model:
    """Parameters in place, uninitialised; `load_weights` fills them. Raises `CheckpointError`."""
    try:
        with torch.device(device), _default_dtype(dtype):
            model = Model(adapter)
    except (MMCoreError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise CheckpointError(
            f"config.json describes a model that adapter {adapter.name!r} cannot build: {error}"
        ) from error
    return model.requires_grad_(False).eval()


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def load_weights(model: Model, adapter: Adapter, files: Sequence[Path]) -> None:
    """Fill every parameter from ``files``, converting to the parameter's dtype and device.

    Where files lie in several folders, a tensor's name begins with its folder's: ``part.layers.0.weight``.

    Raises `WeightError` naming the tensor, and the file it is in or is missing from.
    """
    with WeightCopier(next(model.parameters()).device) as copier:
        fill(LoadPlan(model, adapter, copier.copy), files)


def fill(plan: LoadPlan, files: Sequence[Path]) -> None:
    """Hand each tensor of ``files`` to ``plan``. Raises `WeightError`."""
    for file, prefix in zip(files, folder_prefixes(files), strict=True):
        for stored in stored_tensors(file):
            plan.take(stored, prefix)
    plan.finish(files)


def folder_prefixes(files: Sequence[Path]) -> list[str]:
    """For each file the path of its folder below the common one, dotted: empty where all share a folder."""
    common = os.path.commonpath([file.parent for file in files]) if files else ""
    return ["".join(f"{part}." for part in file.parent.relative_to(common).parts) for file in files]


class LoadPlan:
    """Which parameter rows are still empty, and which checkpoint tensor may fill them.

    ``copy`` fills rows with a stored tensor of as many elements, now or until loading ends.
    """

    def __init__(
        self, model: Model, adapter: Adapter, copy: Callable[[Tensor, StoredTensor], object]
    ) -> None:
        self._adapter = adapter.name
        self._copy = copy
        self._parameters = dict(model.named_parameters())
        self._parts = {name: _parts(model, name) for name in self._parameters}
        self._empty = {(name, shard) for name, parts in self._parts.items() for shard in parts}
        self._rules = [(digits_pattern(rule.source), rule) for rule in adapter.weights]
        self._ignored = [(digits_pattern(item.source), item) for item in adapter.ignored]
        self._sources: dict[str, StoredTensor] = {}
        self._twins: list[tuple[StoredTensor, IgnoredWeight]] = []

    def take(self, stored: StoredTensor, prefix: str = "") -> None:
        """Copy one checkpoint tensor to where its rule says. Reads it only if it is used."""
        name, file = prefix + stored.name, stored.file
        lost = next((item for pattern, item in self._ignored if pattern.fullmatch(name)), None)
        if lost is not None:
            self._twins += [(stored, lost)] if lost.same_as else []
            return
        matches = [(rule, found) for pattern, rule in self._rules if (found := pattern.fullmatch(name))]
        if not matches:
            raise WeightError(
                f"{file.name}: tensor {name!r} has no place in adapter {self._adapter!r}; the checkpoint is "
                "of another model, or the adapter must map or ignore it"
            )
        if len(matches) > 1:
            targets = ", ".join(rule.target for rule, _ in matches)
            raise WeightError(
                f"{file.name}: tensor {name!r} fits several rules of {self._adapter}: {targets}"
            )
        rule, found = matches[0]
        target = rule.target.format(*found.groups())
        rows = self._claim(target, rule.shard, name, file)
        self._sources[target] = stored
        into = self._parameters[target].data[rows]
        _check_shape(into, stored, rule.reshape, f"{file.name}: tensor {name!r}")
        self._copy(into, stored)

    def finish(self, files: Sequence[Path]) -> None:
        """Raise unless every parameter was filled, and what was left out as a repetition is one."""
        if not self._empty:
            self._check_twins()
            return
        places = ", ".join(file.name for file in files) or "no weight file"
        names = sorted(self._expected(target, shard) for target, shard in self._empty)
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise WeightError(
            f"missing from {places}: {'; '.join(names[:3])}{more}; the checkpoint is incomplete or its "
            "config.json describes another model"
        )

    def _check_twins(self) -> None:
        """What was left out as a repetition must be one."""
        for twin, item in self._twins:
            used = self._sources[item.same_as]
            if not same_values(twin, used):
                raise WeightError(
                    f"{twin.file.name}: tensor {twin.name!r} would be left out ({item.reason}), but its "
                    f"values are not those of {used.name!r}; is tie_word_embeddings in config.json wrong?"
                )

    def _claim(self, target: str, shard: str, name: str, file: Path) -> slice:
        """Rows of ``target`` that this tensor fills, marked as filled."""
        parts = self._parts.get(target)
        if parts is None or (shard and shard not in parts):
            raise WeightError(
                f"{file.name}: tensor {name!r} would fill {_label(target, shard)}, which this config.json "
                "does not have; check its layer counts and biases"
            )
        wanted = {(target, shard)} if shard else {(target, part) for part in parts}
        if not wanted <= self._empty:
            raise WeightError(
                f"{file.name}: tensor {name!r} would fill {_label(target, shard)} a second time; the "
                "checkpoint holds it twice"
            )
        self._empty -= wanted
        return parts[shard] if shard else slice(None)

    def _expected(self, target: str, shard: str) -> str:
        """What a missing part would be called in the checkpoint."""
        names = []
        for _, rule in self._rules:
            found = digits_pattern(rule.target).fullmatch(target)
            if found and rule.shard in (shard, ""):
                names.append(repr(rule.source.format(*found.groups())))
        return f"{' or '.join(names) or 'a tensor that no rule names'} (for {_label(target, shard)})"


def parameter_parts(model: nn.Module) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """(parameter, shard, shape of that shard) of all that a checkpoint fills."""
    for name, parameter in model.named_parameters():
        for shard, rows in _parts(model, name).items():
            yield name, shard, tuple(parameter[rows].shape)


def _parts(model: nn.Module, parameter: str) -> Mapping[str, slice]:
    """Rows by shard; one nameless shard where a parameter is not fused."""
    owner, _, leaf = parameter.rpartition(".")
    module = model.get_submodule(owner)
    return module.shards(leaf) if isinstance(module, FusedLinear) else {"": slice(None)}


def digits_pattern(template: str) -> re.Pattern[str]:
    """What a rule's template matches: ``{}`` is a run of digits."""
    return re.compile(re.escape(template).replace(r"\{\}", r"(\d+)"))


def _label(target: str, shard: str) -> str:
    return f"{target}[{shard}]" if shard else target


def _check_shape(rows: Tensor, stored: StoredTensor, reshape: bool, where: str) -> None:
    fits = prod(stored.shape) == rows.numel() if reshape else stored.shape == tuple(rows.shape)
    if not fits:
        raise WeightError(
            f"{where} has shape {list(stored.shape)}, but config.json asks for {list(rows.shape)}"
        )
