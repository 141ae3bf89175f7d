"""The manifest: what everybody pays for who has the package installed."""

from __future__ import annotations

import os
import subprocess
import sys

from mmcore.plugins import load_plugins
from mmcore.testing.law import law
from mmcore.testing.subject import Subject

HEAVY = ("torch", "triton", "transformers", "numpy", "PIL")
SECONDS = 0.05
_PROBE = """
import sys, time
import mmcore, mmcore.hookspecs, mmcore.manifest, importlib
start = time.process_time()
importlib.import_module(sys.argv[1])
print(time.process_time() - start, *sys.modules)
"""


def manifest_of(subject: Subject) -> str:
    """The module that registers the adapter; of one that is not installed, its target's package."""
    for plugin in load_plugins().inventory.plugins:
        if subject.info in plugin.adapters:
            return str(getattr(plugin.plugin, "__name__", type(plugin.plugin).__module__))
    module = subject.info.target.partition(":")[0]
    return module.rpartition(".")[0] or module


def _probe(module: str) -> tuple[float, set[str]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _PROBE, module]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, f"import {module} fails: {done.stderr.strip()[-300:]}"
    seconds, *modules = done.stdout.split()
    return float(seconds), set(modules)


@law()
def manifest_is_light(subject: Subject) -> None:
    """A manifest is imported in 50 ms and brings no torch, numpy or transformers."""
    module = manifest_of(subject)
    probes = [_probe(module) for _ in range(3)]
    heavy = sorted(probes[0][1].intersection(HEAVY))
    assert not heavy, f"import {module} imports {', '.join(heavy)}: import them where they are used"
    seconds = min(seconds for seconds, _ in probes)
    assert seconds < SECONDS, f"import {module} takes {1000 * seconds:.0f} ms, more than 50"
