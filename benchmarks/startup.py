"""Time starts from files: a checkpoint of a published shape with random weights, written first.

    python -m benchmarks.startup --shape A --folder FOLDER --out FILE

The files are as large as the model (A: 16.6 GB in bfloat16) and in the page cache when the first start reads
them. Each start is a new process (``mmcore bench startup``); the first hashes the weights and, on a machine
that has never run the kernels, compiles them.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from benchmarks.shapes import SHAPES
from mmcore.cli import main as mmcore_command
from mmcore.inputs.checkpoint import Checkpoint
from mmcore.plugins import load_plugins
from mmcore.testing.tiny import tensor_shapes, write_files

SHARD_BYTES = 2 << 30
WRITERS = 4

Shapes = Mapping[str, tuple[int, ...]]


def write_checkpoint(shape: str, folder: Path, device: str, shard_bytes: int = SHARD_BYTES) -> int:
    """A folder as a hub's, in shards; gives the bytes of its weights."""
    write_files(folder, SHAPES[shape]())
    checkpoint = Checkpoint(folder)
    registry = load_plugins()
    adapter = registry.load_adapter(registry.resolve(checkpoint.config), checkpoint.config, checkpoint)
    groups = list(shards(tensor_shapes(adapter), shard_bytes))
    names = [folder / f"model-{n:05}-of-{len(groups):05}.safetensors" for n in range(1, len(groups) + 1)]
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(lambda group, file: save_file(random_tensors(group, device), file), groups, names))
    return sum(file.stat().st_size for file in names)


def shards(shapes: Shapes, shard_bytes: int) -> Iterator[Shapes]:
    """In order, each of about so many bytes of bfloat16."""
    group: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes.items():
        group[name] = shape
        if sum(2 * math.prod(one) for one in group.values()) >= shard_bytes:
            yield group
            group = {}
    if group:
        yield group


def random_tensors(shapes: Shapes, device: str) -> dict[str, Tensor]:
    """In bfloat16, made on ``device``: matrices scaled by fan-in, the rest around 1."""
    found = {}
    for name, shape in shapes.items():
        tensor = torch.empty(shape, dtype=torch.bfloat16, device=device)
        wide = len(shape) > 1
        found[name] = tensor.normal_(float(not wide), math.prod(shape[1:]) ** -0.5 if wide else 0.1).cpu()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=SHAPES, default="A")
    parser.add_argument("--folder", type=Path, required=True, help="where the checkpoint is written")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--num-iters", type=int, default=3)
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    begin = time.monotonic()
    size = write_checkpoint(arguments.shape, arguments.folder, device)
    print(f"wrote {size / 1e9:.1f} GB in {time.monotonic() - begin:.1f} s", flush=True)
    if device == "cuda":
        torch.cuda.empty_cache()
    command = ["bench", "startup", "--model", str(arguments.folder), "--num-iters", str(arguments.num_iters)]
    return mmcore_command([*command, "--json", str(arguments.out)])


if __name__ == "__main__":
    raise SystemExit(main())
