"""Checkpoints in files of at most 12 MB: fp32 weights in three, the optimizer's moments in bf16 in two.

The moments lose precision only at a stop; the second one keeps its exponent, which is what matters.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file, save_file

if TYPE_CHECKING:
    from train import Trainer

PARTS = 3


def save(trainer: Trainer, out: Path) -> None:
    """Writes weights_{0,1,2}, first, second (safetensors) and state.json."""
    out.mkdir(parents=True, exist_ok=True)
    names = list(trainer.params)
    for part in range(PARTS):
        save_file(
            {n: trainer.params[n].detach().cpu().contiguous() for n in names[part::PARTS]},
            out / f"weights_{part}.safetensors",
        )
    for key, file in (("exp_avg", "first"), ("exp_avg_sq", "second")):
        moments = {
            n: trainer.optimizer.state[t][key].to(torch.bfloat16).cpu() for n, t in trainer.params.items()
        }
        save_file(moments, out / f"{file}.safetensors")
    steps = float(next(iter(trainer.optimizer.state.values()))["step"])
    state = {
        "step": trainer.step,
        "elapsed": trainer.elapsed,
        "optimizer_step": steps,
        "seed": trainer.options.seed,
    }
    (out / "state.json").write_text(json.dumps(state))


def load_weights(folder: Path) -> dict[str, torch.Tensor]:
    """The fp32 weights of a checkpoint, the auxiliary head among them."""
    weights: dict[str, torch.Tensor] = {}
    for part in range(PARTS):
        weights |= load_file(folder / f"weights_{part}.safetensors")
    return weights


def load(trainer: Trainer, folder: Path) -> None:
    """Puts weights, moments, step and elapsed time back."""
    state = json.loads((folder / "state.json").read_text())
    weights = load_weights(folder)
    first, second = load_file(folder / "first.safetensors"), load_file(folder / "second.safetensors")
    with torch.no_grad():
        for name, tensor in trainer.params.items():
            tensor.copy_(weights[name])
            trainer.optimizer.state[tensor] = {
                "step": torch.tensor(state["optimizer_step"], device=tensor.device),
                "exp_avg": first[name].to(tensor.device, torch.float32),
                "exp_avg_sq": second[name].to(tensor.device, torch.float32),
            }
    trainer.step, trainer.elapsed = state["step"], state["elapsed"]
