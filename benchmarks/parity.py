"""How far each family's answers lie from its reference's: ``python -m benchmarks.parity [ADAPTER ...]``.

Runs mmcore and the reference that the family names for the conformance kit over the family's tiny random
checkpoints, in float32 on the CPU, and writes what it found into each plugin as ``parity.json``.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path

import torch
import transformers
from hypothesis import HealthCheck, Phase, given, settings

from mmcore.manifest import AdapterInfo
from mmcore.plugins import load_plugins
from mmcore.request import PreparedRequest, RequestOutput
from mmcore.testing.answers import Room
from mmcore.testing.family import Case, Family
from mmcore.testing.laws.parity import edited, prompt_of, referred
from mmcore.testing.lookup import find_family
from mmcore.testing.samples import Ask
from mmcore.testing.subject import Subject

PROMPTS = 50
"""Of each checkpoint."""
ROOM = Room(max_num_tokens=48)
"""Small steps, so that prompts are cut into chunks."""


@dataclass
class Parity:
    """What was compared so far, of one kind of model."""

    prompts: int = 0
    tokens: int = 0
    different_tokens: int = 0
    """Whose score the reference has below that of another token."""
    worst: float = 0.0
    """Largest difference of a log-probability among the four best, relative to the largest logit."""

    def add(self, subject: Subject, ask: Ask) -> None:
        request = subject.prepared(ask)
        (output,) = subject.first_links([request], ROOM)
        logits = subject.reference.logits(prompt_of(request), ask.media, output.token_ids).float()
        self._compare(output, _allowed(subject, request, logits, output), float(logits.abs().max()))

    def _compare(self, output: RequestOutput, allowed: torch.Tensor, largest: float) -> None:
        self.prompts += 1
        self.tokens += len(output.token_ids)
        best = allowed.argmax(dim=-1).tolist()
        self.different_tokens += sum(one != other for one, other in zip(output.token_ids, best, strict=True))
        wanted = allowed.log_softmax(dim=-1)
        for place, scores in enumerate(output[0].logprobs or ()):
            for token, score in scores.items():
                self.worst = max(self.worst, abs(score.logprob - float(wanted[place, token])) / largest)


def _allowed(
    subject: Subject, request: PreparedRequest, logits: torch.Tensor, output: RequestOutput
) -> torch.Tensor:
    """What the family's own rules leave of the reference's logits, [answer, vocabulary]."""
    ids = output.token_ids
    return torch.stack([edited(subject, request, logits[n], ids[:n]) for n in range(len(ids))])


def measure_case(info: AdapterInfo, family: Family, case: Case, found: Parity) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        Subject.open(info, family, case, Path(folder) / "model") as subject,
    ):

        @settings(
            max_examples=PROMPTS,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(ask=referred(subject))
        def compare(ask: Ask) -> None:
            found.add(subject, ask)

        compare()


def measure(name: str) -> None:
    info, family = find_family(load_plugins(), name)
    found: dict[str, Parity] = defaultdict(Parity)
    for case in family.cases:
        if case.reference is not None:
            measure_case(info, family, case, found[case.models or case.name])
    record = {
        "transformers": transformers.__version__,
        "torch": torch.__version__.partition("+")[0],
        "models": {models: asdict(parity) for models, parity in found.items()},
    }
    file = Path(str(files(info.target.partition(".")[0]))) / "parity.json"
    file.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(f"{name}: {json.dumps(record['models'])}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "adapters", nargs="*", metavar="ADAPTER", help="all installed ones, where none is named"
    )
    names = [info.name for info in load_plugins().inventory.adapters if info.testing]
    for name in parser.parse_args().adapters or names:
        measure(name)


if __name__ == "__main__":
    main()
