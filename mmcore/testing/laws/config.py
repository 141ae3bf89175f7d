"""Configs: the family's published ones are served, whatever else there is in a file is told so."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from mmcore.adapter import Adapter, Tokenizer
from mmcore.errors import MMCoreError
from mmcore.inputs.checkpoint import Checkpoint
from mmcore.testing.law import law
from mmcore.testing.subject import Subject

Place = tuple[str, ...]
_DROPPED = "dropped"
_STRANGE: tuple[Any, ...] = (_DROPPED, None, "strange", [], {}, -1, 0, 0.5, True, 10**12)


@dataclass(frozen=True, slots=True)
class PublishedFiles:
    """Implements `mmcore.adapter.CheckpointFiles`: small JSON files over those of a tiny checkpoint."""

    files: Mapping[str, Mapping[str, Any]]
    tiny: Checkpoint

    def json(self, name: str) -> Mapping[str, Any]:
        return self.files[name] if name in self.files else self.tiny.json(name)

    def text(self, name: str) -> str | None:
        return self.tiny.text(name)

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """Of a published checkpoint only the small files are known."""
        return ()

    @property
    def tokenizer(self) -> Tokenizer:
        return self.tiny.tokenizer

    @property
    def chat_template(self) -> str | None:
        return self.tiny.chat_template


@dataclass(frozen=True, slots=True)
class Change:
    """One field of ``config.json``, dropped or of a strange value."""

    place: Place
    value: Any

    def of(self, config: Mapping[str, Any]) -> dict[str, Any]:
        changed: dict[str, Any] = copy.deepcopy(dict(config))
        part: Any = changed
        for name in self.place[:-1]:
            part = part[name]
        if self.value == _DROPPED:
            del part[self.place[-1]]
        else:
            part[self.place[-1]] = self.value
        return changed


def places(config: Mapping[str, Any], above: Place = ()) -> Iterator[Place]:
    for name, value in config.items():
        yield (*above, name)
        if isinstance(value, Mapping):
            yield from places(value, (*above, name))


def changes(subject: Subject) -> st.SearchStrategy[Change]:
    found = sorted(places(subject.checkpoint.config))
    return st.builds(Change, st.sampled_from(found), st.sampled_from(_STRANGE))


def _is_first_case(subject: Subject) -> bool:
    return subject.case == subject.family.cases[0]


@law(applies=_is_first_case)
def published_configs_are_served(subject: Subject) -> None:
    """Each published ``config.json`` of the family makes an adapter."""
    family = subject.family
    for name, config in family.published.items():
        files = PublishedFiles(family.published_files.get(name, {}), subject.checkpoint)
        try:
            adapter = subject.factory.from_config(config, files)
        except Exception as error:
            raise AssertionError(f"{name}: {type(error).__name__}: {error}") from error
        assert isinstance(adapter, Adapter), f"{name}: from_config gives a {type(adapter).__name__}"


@law(cost=0.1, change=changes)
def strange_configs_are_refused(subject: Subject, change: Change) -> None:
    """A field that is missing, of another type or absurd gives an adapter or a typed error."""
    config = change.of(subject.checkpoint.config)
    try:
        adapter = subject.factory.from_config(config, subject.checkpoint)
    except MMCoreError:
        return
    assert isinstance(adapter, Adapter), f"from_config gives a {type(adapter).__name__}"
