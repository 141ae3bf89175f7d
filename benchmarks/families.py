"""Writes ``docs/families.md`` from the installed plugins: ``python -m benchmarks.families``.

Each row is made of an adapter over a tiny checkpoint of its kind, of its manifest, and of the ``parity.json``
that `benchmarks.parity` left in its plugin.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from mmcore.adapter import Adapter, Fusion
from mmcore.manifest import AdapterInfo
from mmcore.plugins import PluginRegistry, load_plugins
from mmcore.request import MediaInfo
from mmcore.testing.family import Case, Family
from mmcore.testing.lookup import find_family
from mmcore.testing.subject import Subject

PAGE = Path(__file__).parents[1] / "docs" / "families.md"
HEADER = (
    "models",
    "package",
    "architectures",
    "media",
    "items a prompt",
    "chunked prefill",
    "KV reuse",
    "encoder reuse",
    "tensor parallel",
    "dtypes",
    "parity",
    "reference",
)
SAMPLES = {
    "image": MediaInfo("image", width=120, height=90),
    "video": MediaInfo("video", width=120, height=90, frames=4, seconds=4.0),
    "audio": MediaInfo("audio", seconds=1.0, sample_rate=16_000, samples=16_000),
}
INTRODUCTION = """\
# Model families

Written by `python -m benchmarks.families` from the installed plugins; a test compares.

"""
NOTES = """
- *Chunked prefill*: where a prompt may be cut between two steps.
- *KV reuse*: what a later request finds in the cache instead of computing it. Cross states are shared by
  requests about the same media and, where an encoder reads the text too, the same text.
- *Encoder reuse*: rows are kept under the content of their item, for any later request with it.
- *Tensor parallel*: the engine runs on one device. Weights of each row can be cut for several, which the law
  `tensor_parallel_parts_make_the_whole` of the [conformance kit](laws.md) holds.
- *dtypes*: sound ones, best first; `dtype="auto"` takes the first that the device has.
- *Parity*: the largest difference of a log-probability to the reference's, relative to its largest logit, and
  generated tokens that the reference ranks second, over generated prompts to tiny random checkpoints in
  float32 on a CPU (`python -m benchmarks.parity`). References are transformers' classes; for NVILA and VILA,
  which have none, its SigLIP, Qwen2 and Llama with projectors and tiling written for the comparison.
"""


def page() -> str:
    registry = load_plugins()
    infos = sorted(registry.inventory.adapters, key=lambda info: info.name)
    rows = [row for info in infos if info.testing for row in _rows(registry, info)]
    return INTRODUCTION + "\n".join(_table((HEADER, *rows))) + "\n" + NOTES


def _rows(registry: PluginRegistry, info: AdapterInfo) -> Iterator[tuple[str, ...]]:
    """One for each kind of model, with the facts of the first case that is of it."""
    origin = registry.inventory.origin_of(info)
    _, family = find_family(registry, info.name)
    parity = recorded_parity(info)
    adapters: dict[str, Adapter] = {}
    architectures: dict[str, set[str]] = defaultdict(set)
    for case in family.cases:
        models = case.models or case.name
        adapter, names = _opened(info, family, case)
        adapters.setdefault(models, adapter)
        architectures[models].update(names)
    architectures[next(iter(adapters))] |= set(info.architectures) - set().union(*architectures.values())
    for models, adapter in adapters.items():
        served = [name for name in info.architectures if name in architectures[models]]
        package = _code(origin.distribution if origin else "-")
        yield (models, package, ", ".join(map(_code, served)), *_facts(adapter), *_parity(parity, models))


def _opened(info: AdapterInfo, family: Family, case: Case) -> tuple[Adapter, Sequence[str]]:
    """The adapter over the case's checkpoint, and the architectures of that."""
    with tempfile.TemporaryDirectory() as folder:
        subject = Subject.open(info, family, case, Path(folder))
        return subject.adapter, subject.checkpoint.config["architectures"]


def _code(name: str) -> str:
    return f"`{name}`"


def _facts(adapter: Adapter) -> Iterator[str]:
    inputs = adapter.inputs
    yield ", ".join(inputs.modalities)
    limits = [limit.max_items for limit in inputs.limits.values() if limit.max_items]
    yield str(min(limits)) if limits else "any number"
    is_cross = adapter.fusion is Fusion.CROSS_ATTENTION
    yield "in the answer's prefix" if is_cross else "between items" if _is_atomic(adapter) else "anywhere"
    yield "prefixes, cross states" if is_cross else "prefixes"
    yield "yes"
    yield "no"
    yield ", ".join(adapter.dtypes)


def _is_atomic(adapter: Adapter) -> bool:
    inputs = adapter.inputs
    return any(inputs.measure([SAMPLES[kind]], [inputs])[0].atomic for kind in inputs.modalities)


def recorded_parity(info: AdapterInfo) -> Mapping[str, Any]:
    """The plugin's ``parity.json``, empty where it has none."""
    file = files(info.target.partition(".")[0]) / "parity.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def _parity(record: Mapping[str, Any], models: str) -> tuple[str, str]:
    found = record.get("models", {}).get(models)
    if found is None:
        return "not measured", "-"
    counted = f"{found['different_tokens']} of {found['tokens']:,} tokens, {found['prompts']} prompts"
    return f"{found['worst']:.1e}; {counted}", f"transformers {record['transformers']}"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    head, *body = rows
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in body:
        yield f"| {' | '.join(row)} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
