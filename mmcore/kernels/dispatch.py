"""Which implementation of an operation runs: Triton where it can, torch everywhere else.

Triton code lives in ``*_triton.py`` modules that launchers import on first use: ``import mmcore.kernels``
works without triton, and ``TRITON_INTERPRET=1`` (read when triton is imported) reaches the kernels.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec

from torch import Tensor


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def use_triton(tensor: Tensor) -> bool:
    """True for a CUDA tensor, and for any tensor where ``TRITON_INTERPRET=1`` asks for the interpreter."""
    return (tensor.is_cuda or os.environ.get("TRITON_INTERPRET") == "1") and _has_triton()
