"""Random weights made where the model lies: speed can be measured at a published shape without its file."""

from __future__ import annotations

import torch
from torch import nn


@torch.no_grad()
def fill_random(model: nn.Module, seed: int = 0) -> None:
    """Matrices are scaled by fan-in and one-dimensional weights lie around 1, so that activations keep their
    size from layer to layer; biases are 0."""
    parameters = dict(model.named_parameters())
    generator = torch.Generator(next(iter(parameters.values())).device).manual_seed(seed)
    for name, parameter in parameters.items():
        if name.endswith("bias"):
            parameter.zero_()
        elif parameter.ndim == 1:
            parameter.normal_(1.0, 0.1, generator=generator)
        else:
            parameter.normal_(0.0, parameter[0].numel() ** -0.5, generator=generator)
