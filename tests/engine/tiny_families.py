"""A tiny checkpoint of each family and variant, to be written into a folder."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import mmcore_blip2.testing as blip2
import mmcore_llava.testing as llava
import mmcore_nougat.testing as nougat
import mmcore_nvila.testing as nvila
import mmcore_qwen2vl.testing as qwen2vl
import mmcore_whisper.testing as whisper

FAMILIES: dict[str, Callable[[Path], Path]] = {
    "llava-1.5": partial(llava.write_tiny_checkpoint, variant="1.5"),
    "llava-next": partial(llava.write_tiny_checkpoint, variant="next"),
    "llava-onevision": partial(llava.write_tiny_checkpoint, variant="onevision"),
    "nvila": partial(nvila.write_tiny_checkpoint, variant="nvila"),
    "nvila-lite": partial(nvila.write_tiny_checkpoint, variant="nvila-lite"),
    "vila1.5": partial(nvila.write_tiny_checkpoint, variant="vila1.5"),
    "vila1.5-40b": partial(nvila.write_tiny_checkpoint, variant="vila1.5-40b"),
    "blip2-opt": partial(blip2.write_tiny_checkpoint, variant="opt"),
    "blip2-t5": partial(blip2.write_tiny_checkpoint, variant="t5"),
    "qwen2vl": qwen2vl.write_tiny_checkpoint,
    "nougat": nougat.write_tiny_checkpoint,
    "whisper": whisper.write_tiny_checkpoint,
}
