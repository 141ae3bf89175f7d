"""The core decides without tensors: a fresh interpreter that imports all of it loads no torch, no numpy."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import mmcore.core

MODULES = [f"mmcore.core.{module.name}" for module in pkgutil.iter_modules(mmcore.core.__path__)]
LOADED = "import sys, {modules}; print(*sorted({{'torch', 'numpy', 'triton'}} & set(sys.modules)))"


def test_the_core_imports_no_tensor_library() -> None:
    assert "mmcore.core.scheduler" in MODULES
    source = LOADED.format(modules=", ".join(MODULES))
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
