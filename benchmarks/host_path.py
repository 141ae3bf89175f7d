"""What a request and a step cost the host, without a device: `python -m benchmarks.host_path [--json PATH]`.

64 prompts of ordinary text, each with its own picture, go the way of `LLM.generate` up to packed encoder
inputs, and then step by step through an engine whose device answers at once. Qwen2-VL-7B's shapes, a
tokenizer of 151,643 entries. Microseconds are CPU time of the thread that does the work, medians: whoever has
the interpreter keeps the others from launching kernels.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from string import ascii_lowercase
from typing import Any, TypeVar

import mmcore_qwen2vl.testing
import numpy as np
import torch
from mmcore_qwen2vl.template import CHAT_TEMPLATE
from PIL import Image
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from benchmarks.shapes import qwen2_vl_7b
from benchmarks.still_device import still_engine
from mmcore.bench.host_time import host_time
from mmcore.bench.workload import WORDS
from mmcore.engine import Engine
from mmcore.inputs.assemble import RequestFacts
from mmcore.inputs.checkpoint import Checkpoint
from mmcore.inputs.items import OpenedItem
from mmcore.inputs.layout import lay_out
from mmcore.inputs.media import open_media
from mmcore.inputs.pipeline import InputPipeline
from mmcore.inputs.prompt import read_prompt
from mmcore.plugins import load_plugins
from mmcore.request import PreparedRequest
from mmcore.sampling_params import SamplingParams
from mmcore.testing.tiny import save_checkpoint

T = TypeVar("T")
Figures = dict[str, dict[str, float]]
VOCABULARY, REQUESTS, STEPS = 151_643, 64, 128
BATCH = 13
"""Pictures that one step's budget of encoder work takes."""
TOKENS = {(448, 448): 322, (1024, 768): 1065}
"""Of a prompt, by its picture's size."""
SAMPLING = SamplingParams(max_tokens=STEPS, ignore_eos=True, temperature=0.0, seed=1)
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
"""How Qwen2's published tokenizer cuts text."""


def large_tokenizer(special: Sequence[str]) -> dict[str, Any]:
    """``tokenizer.json`` of a byte-level BPE with as many entries as Qwen2's: runs of letters by length."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: n for n, token in enumerate((*letters, *special))}
    merges: list[tuple[str, str]] = []
    layer = ["Ġ", *ascii_lowercase]
    while len(vocabulary) < VOCABULARY:
        pairs = list(product(layer, ascii_lowercase))[: VOCABULARY - len(vocabulary)]
        layer = [first + second for first, second in pairs]
        vocabulary |= {token: len(vocabulary) + n for n, token in enumerate(layer)}
        merges += pairs
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    split = pre_tokenizers.Split(Regex(_WORDS), "isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return json.loads(tokenizer.to_str())  # type: ignore[no-any-return]


def write_model(folder: Path) -> Path:
    tokenizer = large_tokenizer(mmcore_qwen2vl.testing.SPECIAL_TOKENS)
    template = {"tokenizer_class": "Qwen2Tokenizer", "chat_template": CHAT_TEMPLATE}
    files = {**qwen2_vl_7b(), "tokenizer.json": tokenizer, "tokenizer_config.json": template}
    return save_checkpoint(folder, {}, files)


def make_prompts(pipeline: InputPipeline, size: tuple[int, int], count: int, seed: int) -> list[Any]:
    """Pictures of (width, height) that no cache has seen, each with a text of its own."""
    rng = np.random.default_rng(seed)
    shape = (size[1], size[0], 3)

    def prompt(letters: int, number: int) -> dict[str, Any]:
        picture = Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8))
        text = f"{number:05d} {WORDS * 5}"[:letters]
        return {"prompt": text, "multi_modal_data": {"image": picture}}

    letters = 8
    while pipeline.prepare(prompt(letters, 0), request_id="length").num_tokens < TOKENS[size]:
        letters += 1
    return [prompt(letters, seed * count + n) for n in range(count)]


class Clock:
    """CPU seconds of this thread, by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)

    def __call__(self, stage: str, call: Callable[..., T], *given: Any, share: int = 1, **options: Any) -> T:
        """``share``: requests that one call serves."""
        begin = time.thread_time()
        found = call(*given, **options)
        self.seconds[stage].append((time.thread_time() - begin) / share)
        return found

    def microseconds(self) -> Figures:
        return {stage: spread(times) for stage, times in self.seconds.items()}


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Microseconds. The least tenth is what the machine's other work adds least to."""
    ordered = sorted(seconds)
    median, least = statistics.median(ordered), ordered[len(ordered) // 10]
    return {"median": round(1e6 * median, 1), "least tenth": round(1e6 * least, 1)}


def request_stages(pipeline: InputPipeline, given: Sequence[Any], clock: Clock) -> list[PreparedRequest]:
    """The steps of `InputPipeline.prepare`, each by itself, then the whole."""
    adapter = pipeline.adapter
    for number, prompt in enumerate(given):
        read = clock("read", read_prompt, prompt)
        segments = clock("render", adapter.prompt.parse, read.text or "", ["image"])
        media = clock("copy and hash", open_media, "image", read.media[0].value, pipeline._fetcher)
        items = clock("plan and keys", pipeline._maker.make, [OpenedItem("image", "image", media)], "")
        plans = [item.plan for item in items]
        layout = clock("tokens", lay_out, segments, plans, adapter, pipeline.tokenizer)
        facts = RequestFacts(request_id=str(number), sampling=SAMPLING)
        clock("assemble", pipeline._assembler.assemble, facts, layout, items)
    return [
        clock("prepared", pipeline.prepare, prompt, SAMPLING, request_id=f"r{number}")
        for number, prompt in enumerate(given)
    ]


def pack_stages(pipeline: InputPipeline, made: Sequence[PreparedRequest], clock: Clock) -> None:
    """Pixels of each item, and its share of a batch's packing."""
    items = [request.items[0] for request in made]
    inputs = [clock("preprocessed", pipeline.preprocess, item) for item in items]
    for start in range(0, len(items), BATCH):
        part, plans = inputs[start : start + BATCH], [item.plan for item in items[start : start + BATCH]]
        clock("packed", pipeline.adapter.encoder.collate, part, plans, share=len(part))


def together(pipeline: InputPipeline, given: Sequence[Any]) -> dict[str, float]:
    """Seconds of all prompts at once on all cores: CPU of the process, and on the clock."""

    def whole(prompt: Any) -> None:
        pipeline.preprocess(pipeline.prepare(prompt, SAMPLING, request_id="r").items[0])

    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        began, wall = time.process_time(), time.perf_counter()
        list(pool.map(whole, given))
        return {"CPU": time.process_time() - began, "clock": time.perf_counter() - wall}


def step_parts(engine: Engine, made: Sequence[PreparedRequest], admission: Clock) -> Figures:
    """A step in which all requests decode, by part; ``wait`` takes in what the device gave."""
    for request in made:
        admission("admitted", engine.add, request)
    while engine.stats.tokens_generated < 3 * len(made):
        engine.step()
    steps: dict[str, list[float]] = defaultdict(list)
    before: dict[str, float] = defaultdict(float)
    with host_time(engine, time.thread_time) as watch:
        for _ in range(STEPS - 16):
            engine.step()
            spent = {part: seconds - before[part] for part, seconds in watch.seconds.items()}
            before.update(watch.seconds)
            spent["scheduler"] = spent.pop("schedule") + spent.pop("update")
            spent["runner"] = spent.pop("submit") + spent.pop("wait", 0.0)
            spent["scheduler and runner"] = spent["scheduler"] + spent["runner"]
            for part, seconds in spent.items():
                steps[part].append(seconds)
    while engine.has_unfinished:
        engine.step()
    return {part: spread(times) for part, times in steps.items()}


def measure(folder: Path, repeats: int) -> dict[str, Figures]:
    """By what was done, microseconds of CPU by stage."""
    checkpoint, registry = Checkpoint(write_model(folder)), load_plugins()
    info = registry.resolve(checkpoint.config, None)
    adapter = registry.load_adapter(info, checkpoint.config, checkpoint)
    pipeline = InputPipeline(adapter, checkpoint, dtype="bfloat16")
    found: dict[str, Figures] = {}
    for size, count in (((448, 448), REQUESTS), ((1024, 768), 8)):
        clock = Clock()
        for seed in range(repeats):
            made = request_stages(pipeline, make_prompts(pipeline, size, count, seed), clock)
            pack_stages(pipeline, made, clock)
        found[f"a request, {size[0]} x {size[1]}"] = clock.microseconds()
    prompts = [make_prompts(pipeline, (448, 448), REQUESTS, 90 + n) for n in range(repeats)]
    runs = [together(pipeline, given) for given in prompts]
    found["64 requests together"] = {name: spread([run[name] for run in runs]) for name in runs[0]}
    made = [pipeline.prepare(p, SAMPLING, request_id=f"s{n}") for n, p in enumerate(prompts[0])]
    admission = Clock()
    found["a step of 64"] = step_parts(still_engine(adapter, pipeline, registry), made, admission)
    found["a request, 448 x 448"] |= admission.microseconds()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), options.repeats)
    for name, figures in found.items():
        print(f"{name + ', us of CPU':<46}{'median':>10}{'least tenth':>14}")
        for stage, figure in figures.items():
            print(f"  {stage:<44}{figure['median']:>10.0f}{figure['least tenth']:>14.0f}")
    if options.json:
        machine = {"python": platform.python_version(), "cores": os.cpu_count(), "load": os.getloadavg()}
        options.json.write_text(json.dumps({**machine, "microseconds": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
