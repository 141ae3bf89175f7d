"""The machine: packages, devices, kernels, caches, plugins."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from mmcore import __version__
from mmcore.cli.finding import Finding
from mmcore.manifest import API_VERSION, OLDEST_API_VERSION
from mmcore.plugins import Inventory

DISTRIBUTION = "mmcore-runtime"
WITHOUT_EXTRA = {"hub": "models cannot be fetched by a hub name", "media": "no video and no compressed sound"}
_REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)(?:\[.*?\])?\s*\(?(?:>=(?P<least>[\d.]+))?.*?\)?\s*(?:;(?P<marker>.*))?"
)
_EXTRA = re.compile(r"extra\s*==\s*['\"](?P<name>[\w-]+)")


@dataclass(frozen=True, slots=True)
class Requirement:
    """A line of the package's metadata. ``extra`` is empty for what every installation needs."""

    name: str
    least: str
    extra: str

    @property
    def command(self) -> str:
        return (
            f"pip install '{DISTRIBUTION}[{self.extra}]'" if self.extra else f"pip install -U '{self.name}'"
        )


# ------------------------------------------------------------------ packages


def check_packages() -> Iterator[Finding]:
    system = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    yield Finding("mmcore", "ok", f"{__version__}, {system}")
    try:
        lines = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        yield Finding("packages", "warning", "mmcore runs from a folder, uninstalled", "pip install -e .")
        return
    needed = [found for found in map(read_requirement, lines) if found is not None]
    wrong = [finding for finding in map(_check_requirement, needed) if finding is not None]
    yield from wrong
    if not wrong:
        yield Finding("packages", "ok", ", ".join(f"{n.name} {metadata.version(n.name)}" for n in needed))


def read_requirement(line: str) -> Requirement | None:
    """None for what this platform does not need, and for the extras of developers."""
    match = _REQUIREMENT.fullmatch(line)
    if match is None or match["name"] == DISTRIBUTION:
        return None
    marker = match["marker"] or ""
    extra = _EXTRA.search(marker)
    name = extra["name"] if extra else ""
    if name not in ("", *WITHOUT_EXTRA) or ("sys_platform" in marker and sys.platform not in marker):
        return None
    return Requirement(match["name"], match["least"] or "", name)


def _check_requirement(needed: Requirement) -> Finding | None:
    what = f"extra '{needed.extra}'" if needed.extra else "packages"
    status = "warning" if needed.extra else "broken"
    loss = f": {WITHOUT_EXTRA[needed.extra]}" if needed.extra else ""
    try:
        version = metadata.version(needed.name)
    except metadata.PackageNotFoundError:
        return Finding(what, status, f"{needed.name} is not installed{loss}", needed.command)  # type: ignore[arg-type]
    if _numbers(version) < _numbers(needed.least):
        return Finding(what, "broken", f"{needed.name} is {version}, needs {needed.least}", needed.command)
    return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


# ------------------------------------------------------------------ devices and kernels


def check_torch() -> Iterator[Finding]:
    try:
        torch: Any = import_module("torch")
    except Exception as error:
        cure = "pip install --force-reinstall torch"
        yield Finding("torch", "broken", f"cannot be imported ({type(error).__name__}: {error})", cure)
        return
    yield from _check_devices(torch)
    yield from _check_kernels(torch.cuda.is_available())


def _check_devices(torch: Any) -> Iterator[Finding]:
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            found = torch.cuda.get_device_properties(index)
            detail = (
                f"{found.name}, {found.total_memory / 2**30:.0f} GiB, capability {found.major}.{found.minor}"
            )
            yield Finding(f"device cuda:{index}", "ok", f"{detail}; torch {torch.__version__}")
        return
    if Path("/proc/driver/nvidia/version").exists():
        build = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "a build for CPUs"
        yield Finding(
            "device",
            "warning",
            f"there is an NVIDIA driver and torch {torch.__version__}, {build}, cannot use it",
            "pip install --force-reinstall torch, in a build for the CUDA version that nvidia-smi shows",
        )
    cores = f"{os.cpu_count()} cores, {torch.get_num_threads()} threads"
    yield Finding("device cpu", "ok", f"{cores}; torch {torch.__version__}, no CUDA device")


def _check_kernels(has_cuda: bool) -> Iterator[Finding]:
    from mmcore.kernels.dispatch import SWITCH, explain, operations

    choice = explain(has_cuda)
    by_choice: dict[str, list[str]] = {}
    for operation, has_kernel in operations():
        chosen = choice.implementation if has_kernel else "torch"
        by_choice.setdefault(chosen, []).append(operation)
    for implementation, names in sorted(by_choice.items()):
        only = implementation == choice.implementation
        why = choice.reason if only else "no Triton kernel is written for it"
        yield Finding(f"kernels {implementation}", "ok", f"{', '.join(names)} ({why})")
    if has_cuda and choice.implementation == "torch":
        off = os.environ.get(SWITCH) == "torch"
        cure = f"unset {SWITCH}" if off else "pip install -U triton"
        yield Finding("kernels", "warning" if off else "broken", "the GPU runs without Triton", cure)
    if has_cuda and not any(map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))):
        yield Finding("kernels", "broken", "Triton needs a C compiler", "apt-get install gcc")


# ------------------------------------------------------------------ caches


def check_caches(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Whether they can be written, without writing."""
    home = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    hub = Path(environ.get("HF_HUB_CACHE") or Path(environ.get("HF_HOME") or home / "huggingface") / "hub")
    yield _check_folder("cache", home / "mmcore", "weights are hashed at each start", "XDG_CACHE_HOME")
    triton = Path(environ.get("TRITON_HOME") or Path.home()) / ".triton" / "cache"
    kernels = Path(environ.get("TRITON_CACHE_DIR") or triton)
    yield _check_folder("kernel cache", kernels, "kernels are compiled at each start", "TRITON_CACHE_DIR")
    yield _check_folder("hub cache", hub, "no model can be fetched", "HF_HOME")
    yield _check_folder(
        "temporary files", Path(environ.get("TMPDIR") or "/tmp"), "kernels cannot be built", "TMPDIR"
    )


def _check_folder(what: str, folder: Path, loss: str, variable: str) -> Finding:
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists() or path == Path("/"))
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return Finding(what, "ok", str(folder))
    reason = "cannot be written" if there.is_dir() else "is not a folder"
    mend = f"chmod u+rwx {there}" if there.is_dir() else f"mv {there} {there}.old && mkdir -p {folder}"
    return Finding(
        what,
        "broken",
        f"{folder} cannot be used, {there} {reason}: {loss}",
        f"{mend}, or export {variable}=FOLDER",
    )


# ------------------------------------------------------------------ plugins


def check_plugins(inventory: Inventory) -> Iterator[Finding]:
    for loaded in inventory.plugins:
        yield Finding(str(loaded.origin), "ok", ", ".join(i.name for i in loaded.adapters) or "no adapter")
        for info in loaded.adapters:
            if not OLDEST_API_VERSION <= info.api_version <= API_VERSION:
                upgrade = DISTRIBUTION if info.api_version > API_VERSION else loaded.origin.distribution
                detail = f"adapter '{info.name}' is written for contract version {info.api_version}"
                yield Finding(str(loaded.origin), "broken", detail, f"pip install -U {upgrade}")
    for failure in inventory.failures:
        name = failure.origin.distribution
        switch_off = f"export MMCORE_DISABLE_PLUGINS={failure.origin.name}"
        cure = f"pip install -U {name}, or pip uninstall {name}, or {switch_off}"
        yield Finding(str(failure.origin), "broken", f"did not load: {failure.reason}", cure)
    for origin in inventory.disabled:
        yield Finding(str(origin), "warning", "switched off", "unset MMCORE_DISABLE_PLUGINS")
    if not inventory.adapters:
        yield Finding("plugins", "broken", "no model family is installed", "pip install mmcore-plugin-FAMILY")
