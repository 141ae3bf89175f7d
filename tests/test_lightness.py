"""What is light stays light: fresh interpreters, their modules and their CPU time."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "triton", "transformers", "numpy", "hypothesis", "av", "huggingface_hub", "asyncio")
"""Nothing of this may be loaded by what answers at once."""

LIGHT = {
    "import mmcore": "import mmcore",
    "contracts": "import mmcore.adapter, mmcore.config, mmcore.sampling_params, mmcore.plugins",
    "mmcore --help": "from mmcore.cli import main; main(['--help'])",
    "mmcore plugins": "from mmcore.cli import main; main(['plugins'])",
    "mmcore plugins --json": "from mmcore.cli import main; main(['plugins', '--json'])",
    "mmcore generate --help": "from mmcore.cli import main; main(['generate', '--help'])",
    "mmcore chat --help": "from mmcore.cli import main; main(['chat', '--help'])",
    "mmcore doctor --help": "from mmcore.cli import main; main(['doctor', '--help'])",
    "mmcore bench --help": "from mmcore.cli import main; main(['bench', 'throughput', '--help'])",
    "mmcore conformance --help": "from mmcore.cli import main; main(['conformance', '--help'])",
    "mmcore new-adapter --help": "from mmcore.cli import main; main(['new-adapter', '--help'])",
    "a taken name": "from mmcore.cli import main; main(['new-adapter', 'llava'])",
    "the plugin of pytest": "import mmcore.testing.pytest_plugin",
    "a library's log": "import mmcore.request_log",
    "a wrong option": "from mmcore.cli import main; main(['generate', '.', '--max-tokens', '0'])",
    "a wrong picture": "from mmcore.cli import main; main(['demo', '--image', 'nowhere.png'])",
    "export modules": "import mmcore.llmapi; dir(mmcore.llmapi)",
}
LISTING = "import sys, atexit; atexit.register(lambda: print('\\n#', *sys.modules)); "


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True, timeout=60
    )


def modules_after(code: str) -> set[str]:
    listing = run("-c", LISTING + code).stdout.rpartition("\n#")[2]
    return set(listing.split())


@pytest.mark.parametrize("what", LIGHT)
def test_nothing_heavy_is_imported(what: str) -> None:
    loaded = modules_after(LIGHT[what])
    assert "mmcore" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_the_listing_sees_what_is_imported() -> None:
    assert "asyncio" in modules_after("import mmcore, asyncio")


@pytest.mark.parametrize(
    "room", ["mmcore.core.scheduler", "mmcore.core.kv_cache_manager", "mmcore.core.output"]
)
def test_the_core_decides_without_arrays(room: str) -> None:
    assert modules_after(f"import {room}").isdisjoint({"torch", "numpy", "triton"})


@pytest.mark.parametrize(
    "room", ["mmcore.inputs.prompt", "mmcore.inputs.pipeline", "mmcore.inputs.tokenizer"]
)
def test_inputs_load_without_torch(room: str) -> None:
    assert modules_after(f"import {room}").isdisjoint({"torch", "triton", "transformers"})


@pytest.mark.timing
@pytest.mark.parametrize(("command", "seconds"), [("--help", 0.15), ("plugins", 0.25)])
def test_the_command_answers_at_once(command: str, seconds: float) -> None:
    """CPU seconds of the whole process, median of five after a first one that fills the bytecode cache."""
    script = Path(sys.executable).with_name("mmcore")
    start = [str(script)] if script.exists() else [sys.executable, "-m", "mmcore"]
    spent = [cpu_seconds([*start, command]) for _ in range(6)][1:]
    assert statistics.median(spent) <= seconds, f"CPU seconds: {spent}"


def cpu_seconds(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, capture_output=True, check=True, timeout=60, env={**os.environ, "NO_COLOR": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
