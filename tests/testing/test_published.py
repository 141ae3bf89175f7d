"""Published configs on the meta device: as many parameters as the reference's class of the same config."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import prod
from typing import Any

import pytest
import torch
import transformers

from mmcore.model.weights import build_model, digits_pattern, parameter_parts
from mmcore.plugins import load_plugins
from mmcore.testing.laws.config import PublishedFiles
from mmcore.testing.lookup import find_family
from mmcore.testing.subject import Subject

REGISTRY = load_plugins()
FAMILIES = {
    info.name: find_family(REGISTRY, info.name)[1] for info in REGISTRY.inventory.adapters if info.testing
}


def reference_class(config: Mapping[str, Any]) -> Any:
    return getattr(transformers, config["architectures"][0], None)


PUBLISHED = [
    (adapter, name)
    for adapter, family in FAMILIES.items()
    for name, config in family.published.items()
    if reference_class(config)
]
EXPECTED = {
    "Qwen2-VL-7B": 8_291_375_616,
    "llava-1.5-7b": 7_063_427_072,
    "whisper-large-v3": 1_543_490_560,
}
"""As their authors' files have them."""


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> Any:
    @cache
    def open_subject(adapter: str) -> Subject:
        info, family = find_family(REGISTRY, adapter)
        return Subject.open(info, family, family.cases[0], tmp_path_factory.mktemp(adapter))

    return open_subject


def test_all_families_with_a_reference_class_are_here() -> None:
    assert {adapter for adapter, _ in PUBLISHED} >= {"blip2", "llava", "qwen2vl", "whisper"}
    assert EXPECTED.keys() <= {name for _, name in PUBLISHED}


@pytest.mark.parametrize(("adapter", "name"), PUBLISHED)
def test_as_many_parameters_as_the_reference(subjects: Any, adapter: str, name: str) -> None:
    """Apart from those that the adapter ignores, each with a reason; a tensor with two names counts twice, as
    in files that hold it twice."""
    subject, family = subjects(adapter), FAMILIES[adapter]
    config = family.published[name]
    files = PublishedFiles(family.published_files.get(name, {}), subject.checkpoint)
    made = subject.factory.from_config(config, files)
    model = build_model(made, torch.bfloat16, torch.device("meta"))
    reference = reference_of(config)
    ignored = [digits_pattern(item.source) for item in made.ignored]
    used = [
        parameter.numel()
        for part, parameter in reference.named_parameters(remove_duplicate=False)
        if not any(pattern.fullmatch(part) for pattern in ignored)
    ]
    assert sum(prod(shape) for _, _, shape in parameter_parts(model)) == sum(used)
    assert reference.num_parameters() == EXPECTED.get(name, reference.num_parameters())


def reference_of(config: Mapping[str, Any]) -> Any:
    kind = reference_class(config)
    with torch.device("meta"):
        return kind(kind.config_class(**config))
