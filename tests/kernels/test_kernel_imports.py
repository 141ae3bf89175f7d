"""Kernels import nothing of mmcore but errors, and no triton unless a kernel runs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import mmcore.kernels

ROOM = Path(mmcore.kernels.__file__).parent

CPU_CALL = """
import sys
sys.modules["triton"] = None  # as on a system that has no triton
import torch
from mmcore.kernels.store_kv import store_kv
from mmcore.kernels.paged_attention import paged_attention
caches = torch.zeros(2, 3, 4, 2, 8)
store_kv(torch.ones(1, 2, 8), torch.ones(1, 2, 8), *caches, torch.tensor([4]))
starts, lens = torch.tensor([0, 1]), torch.tensor([1])
out = paged_attention(torch.ones(1, 2, 8), *caches, torch.tensor([[1]]), starts, lens, 1.0, max_query_len=1)
assert torch.equal(out, torch.ones(1, 2, 8))
assert not [name for name in sys.modules if name.startswith("mmcore.kernels") and name.endswith("_triton")]
"""


def test_the_room_imports_errors_only() -> None:
    for path in ROOM.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mmcore"):
                assert node.module is not None
                assert node.module == "mmcore.errors" or node.module.startswith("mmcore.kernels."), path.name


def test_the_cpu_path_needs_no_triton() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", CPU_CALL], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
