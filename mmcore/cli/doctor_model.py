"""A model's files: is everything there, whole, and served by an adapter?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmcore.cli.finding import Finding
from mmcore.errors import MMCoreError, PluginError
from mmcore.inputs.checkpoint import Checkpoint
from mmcore.inputs.tensor_header import tensor_ends
from mmcore.plugins import PluginRegistry
from mmcore.plugins.advice import package_for

LFS_POINTER = b"version https://git-lfs"
TOKENIZER_PARTS = ("vocab.json", "vocab.txt", "tokenizer.model")
"""Files of slow tokenizers, from which transformers makes tokenizer.json."""


def check_model(name: str, registry: PluginRegistry) -> Iterator[Finding]:
    folder = Path(name).expanduser()
    found = folder if folder.is_dir() else _in_hub_cache(name)
    if isinstance(found, Finding):
        yield found
        return
    yield Finding("model", "ok", str(found))
    checkpoint = Checkpoint(found)
    yield from _check_config(checkpoint, registry)
    yield _check_tokenizer(checkpoint)
    yield _check_weights(checkpoint)
    yield _check_template(checkpoint)


def _in_hub_cache(name: str) -> Path | Finding:
    """The folder of an earlier download; nothing is fetched."""
    if name.count("/") > 1 or name.startswith((".", "/", "~")):
        return Finding(
            "model", "broken", f"there is no folder {name!r}", f"hf download OWNER/MODEL --local-dir {name}"
        )
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        return Finding("model", "broken", f"there is no folder {name!r}", "pip install 'mmcore-runtime[hub]'")
    try:
        return Path(snapshot_download(name, local_files_only=True))
    except Exception:  # the client's errors have no common base
        detail = f"there is no folder {name!r}, and no download of that name; it is fetched at first use"
        return Finding("model", "warning", detail, f"hf download {name}")


def _fetch(checkpoint: Checkpoint, what: str) -> str:
    return f"hf download OWNER/MODEL {what} --local-dir {checkpoint.path}"


# ------------------------------------------------------------------ configuration and adapter


def _check_config(checkpoint: Checkpoint, registry: PluginRegistry) -> Iterator[Finding]:
    try:
        config = checkpoint.config
    except MMCoreError as error:
        yield Finding("config.json", "broken", str(error), _fetch(checkpoint, "config.json"))
        return
    try:
        info = registry.resolve(config)
        registry.load_adapter(info, config, checkpoint)
    except MMCoreError as error:
        yield Finding("adapter", "broken", str(error), _cure_of(error, config, registry))
        return
    yield Finding("adapter", "ok", f"'{info.name}' serves {', '.join(config['architectures'])}")


def _cure_of(error: MMCoreError, config: Any, registry: PluginRegistry) -> str:
    architectures = config.get("architectures")
    named = architectures if isinstance(architectures, list) else []
    package = package_for([name for name in named if isinstance(name, str)])
    if package is None:
        return "mmcore plugins"
    is_there = any(p.origin.distribution == package for p in registry.inventory.plugins)
    return f"pip install {'-U ' if is_there and isinstance(error, PluginError) else ''}{package}"


# ------------------------------------------------------------------ files


def _check_tokenizer(checkpoint: Checkpoint) -> Finding:
    try:
        tokenizer = checkpoint.tokenizer
    except MMCoreError as error:
        parts = any((checkpoint.path / name).is_file() for name in TOKENIZER_PARTS)
        cure = _convert(checkpoint.path) if parts else _fetch(checkpoint, "tokenizer.json")
        return Finding("tokenizer", "broken", str(error).partition(";")[0], cure)
    return Finding("tokenizer", "ok", f"{type(tokenizer).__name__}, tokenizer.json")


def _convert(folder: Path) -> str:
    name = repr(str(folder))
    code = f"from transformers import AutoTokenizer as T; T.from_pretrained({name}).save_pretrained({name})"
    return f'python -c "{code}"'


def _check_weights(checkpoint: Checkpoint) -> Finding:
    try:
        files = checkpoint.weight_files()
    except MMCoreError as error:
        return Finding("weights", "broken", str(error), _fetch(checkpoint, "--include '*.safetensors'"))
    for file in files:
        fault = _fault_of(file)
        if fault:
            pull = f"git -C {checkpoint.path} lfs pull"
            cure = pull if "pointer" in fault else _fetch(checkpoint, file.name)
            return Finding("weights", "broken", f"{file.name} {fault}", cure)
    size = sum(file.stat().st_size for file in files)
    return Finding("weights", "ok", f"{len(files)} file(s), {size / 1e6:.1f} MB")


def _fault_of(file: Path) -> str:
    """Whether a safetensors file is as long as its header says."""
    with file.open("rb") as stream:
        if stream.read(len(LFS_POINTER)) == LFS_POINTER:
            return "is a git-lfs pointer, not the file"
    ends = tensor_ends(file)
    if ends is None:
        return "has no safetensors header: it is damaged or cut"
    size = file.stat().st_size
    wanted = max(ends.values(), default=size)
    return f"has {size} bytes and should have {wanted}" if size != wanted else ""


def _check_template(checkpoint: Checkpoint) -> Finding:
    if checkpoint.chat_template is None:
        return Finding("chat template", "ok", "none: prompts are used as they stand")
    return Finding("chat template", "ok", "there")
