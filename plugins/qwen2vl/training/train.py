"""Trains the reader; stops after a given time and resumes from its checkpoint.

    python train.py --data DATA --out OUT --total 840 --stop-after 500     # first run
    python train.py --data DATA --out OUT --total 840 --stop-after 400 --resume OUT

The learning rate follows the seconds trained so far, over all runs. The whole step (sampling,
augmenting, forward, backward, clipping, optimizer) is one CUDA graph.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from augment import Augmenter
from batch import Batch, Layout, make_batch
from checkpoint import load, save
from kinds import KINDS
from model import Params, Reader, init_params
from pool import Pools, Workers
from render import NUM_CLASSES
from torch import Tensor

PEAK, FLOOR, WARM_STEPS, AUX_UNTIL, VQA_WEIGHT = 1.2e-3, 0.01, 300, 0.6, 0.4


@dataclass(frozen=True)
class Options:
    """Command line."""

    data: Path
    out: Path
    total: float
    stop_after: float
    resume: Path | None
    seed: int
    workers: int
    max_steps: int
    device: str
    compiled: bool


class Trainer:
    """Owns parameters, optimizer, pools and the captured step."""

    def __init__(self, options: Options) -> None:
        self.options, self.device = options, torch.device(options.device)
        self.elapsed, self.step = 0.0, 0
        params = init_params(options.seed)
        self.params: Params = {n: t.to(self.device).requires_grad_() for n, t in params.items()}
        self.rate = torch.zeros((), device=self.device)
        cuda = self.device.type == "cuda"
        decayed = [t for n, t in self.params.items() if t.dim() > 1 and "embed" not in n]
        plain = [t for n, t in self.params.items() if t.dim() <= 1 or "embed" in n]
        groups = [{"params": decayed, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}]
        extra: dict[str, Any] = {"fused": True, "capturable": True} if cuda else {}
        self.optimizer = torch.optim.AdamW(groups, lr=self.rate, betas=(0.9, 0.98), eps=1e-8, **extra)
        self.reader = Reader(self.params, torch.bfloat16, options.compiled)
        self.layout, self.augmenter = Layout(self.device), Augmenter(self.device)
        self.pools = Pools(self.device, 256 if cuda else 4)
        with np.load(options.data / "easy_vqa.npz") as stored:
            self.shapes = torch.from_numpy(stored["train"]).to(self.device)
        self.aux_weight = torch.zeros((), device=self.device)
        self.losses = torch.zeros(3, device=self.device)
        self.right = torch.zeros(len(KINDS), device=self.device)
        weight = torch.ones(NUM_CLASSES, device=self.device)
        weight[0] = 0.25
        self.class_weight = weight

    def loss(self, batch: Batch) -> Tensor:
        """Answers of lines + 0.4 x answers of the other rows + aux weight x characters by column."""
        features = self.reader.see(batch.patches, self.layout.positions, self.layout.vision)
        x = self.reader.embed(batch.ids, features, batch.destinations)
        logits = self.reader.read(x, batch.axes, self.layout.text)
        each = F.cross_entropy(logits, batch.targets, ignore_index=-1, reduction="none")
        asked = batch.targets >= 0
        line = (asked & self.layout.token_drawn).float()
        other = (asked & ~self.layout.token_drawn).float()
        lines, others = (each * line).sum() / line.sum(), (each * other).sum() / other.sum()
        named = F.linear(
            features.bfloat16(), self.params["aux.weight"].bfloat16(), self.params["aux.bias"].bfloat16()
        )
        aux = F.cross_entropy(
            named.float().view(-1, NUM_CLASSES), batch.aux.flatten(), self.class_weight, ignore_index=-1
        )
        with torch.no_grad():
            wrong = (logits.argmax(-1) != batch.targets) & asked
            rows = torch.zeros(self.layout.row_kind.shape[0], device=self.device)
            rows.index_add_(0, self.layout.token_row, wrong.float())
            self.right.index_add_(0, self.layout.row_kind, (rows == 0).float())
            self.losses += torch.stack((lines, others, aux)).detach()
        return lines + VQA_WEIGHT * others + self.aux_weight * aux

    def train_step(self) -> None:
        """One whole step, on the device only."""
        batch = make_batch(self.pools, self.layout, self.augmenter, self.shapes)
        loss = self.loss(batch)
        tensors = list(self.params.values())
        for tensor, grad in zip(tensors, torch.autograd.grad(loss, tensors), strict=True):
            tensor.grad = grad.contiguous()
        torch.nn.utils.clip_grad_norm_(tensors, 1.0, foreach=True)
        self.optimizer.step()

    def schedule(self) -> None:
        """Sets the learning rate and the auxiliary weight from the time trained so far."""
        progress = min(1.0, self.elapsed / self.options.total)
        cosine = FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * progress))
        self.rate.fill_(PEAK * cosine * min(1.0, (self.step + 1) / WARM_STEPS))
        self.aux_weight.fill_(0.5 * max(0.0, 1 - progress / AUX_UNTIL))

    def capture(self) -> torch.cuda.CUDAGraph:
        """Warms up with learning rate 0 (weights and moments are put back), then captures the step."""
        before = [t.detach().clone() for t in self.params.values()]
        moments = {id(t): {n: v.clone() for n, v in s.items()} for t, s in self.optimizer.state.items()}
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.train_step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.train_step()
        with torch.no_grad():
            for tensor, old in zip(self.params.values(), before, strict=True):
                tensor.copy_(old)
            for tensor, state in self.optimizer.state.items():
                for name, value in state.items():
                    known = moments.get(id(tensor))
                    value.copy_(known[name]) if known else value.zero_()
        self.losses.zero_(), self.right.zero_()
        return graph

    def report(self, steps: int, seconds: float) -> dict[str, Any]:
        """Mean losses and the share of exactly right rows by kind since the last report."""
        losses = [round(v / steps, 4) for v in self.losses.tolist()]
        right = (self.right / steps / self.layout.kind_rows).tolist()
        self.losses.zero_(), self.right.zero_()
        exact = {kind.name: round(share, 4) for kind, share in zip(KINDS, right, strict=True)}
        return {
            "step": self.step,
            "seconds": round(self.elapsed, 1),
            "ms": round(1000 * seconds / steps, 2),
            "rows": self.pools.received,
            "losses": losses,
            "exact": exact,
        }

    def run(self, workers: Workers) -> None:
        """Trains until the total, the stop time or the step limit is reached."""
        o, began = self.options, time.time()
        while not self.pools.ready():
            self.pools.feed(workers, 64)
            time.sleep(0.01)
        cuda = self.device.type == "cuda"
        replay = self.capture().replay if cuda else self.train_step
        print(f"ready after {time.time() - began:.1f} s, {self.pools.received} rows", flush=True)
        start, base, events, last = time.time(), self.elapsed, [], (time.time(), self.step)
        first_step = self.step
        while (
            self.elapsed < o.total
            and time.time() - start < o.stop_after
            and self.step - first_step < o.max_steps
        ):
            self.schedule()
            replay()
            if cuda:
                events.append(torch.cuda.Event())  # type: ignore[no-untyped-call]
                events[-1].record()
            self.pools.feed(workers, 16)
            if len(events) > 2:
                events.pop(0).synchronize()
            self.step += 1
            self.elapsed = base + time.time() - start
            if self.step % (500 if cuda else 5) == 0:
                line = self.report(self.step - last[1], time.time() - last[0])
                last = (time.time(), self.step)
                self._log(line)
        if self.step > last[1]:
            self._log(self.report(self.step - last[1], time.time() - last[0]))

    def _log(self, line: dict[str, Any]) -> None:
        text = json.dumps(line)
        with (self.options.out / "training.log").open("a") as log:
            log.write(text + "\n")
        print(text, flush=True)


def parse() -> Options:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--total", type=float, default=840.0, help="seconds of training over all runs")
    parser.add_argument("--stop-after", type=float, default=1e9, help="seconds of training in this run")
    parser.add_argument("--resume", type=Path, help="folder of a checkpoint")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=15)
    parser.add_argument("--max-steps", type=int, default=1 << 60)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--eager", dest="compiled", action="store_false")
    return Options(**vars(parser.parse_args()))


def main() -> None:
    """Command line."""
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    workers = Workers(options.workers, options.data, f"{options.seed}/{options.resume}/{time.time_ns()}")
    torch.manual_seed(options.seed if options.resume is None else time.time_ns() % 2**31)
    trainer = Trainer(options)
    if options.resume is not None:
        load(trainer, options.resume)
    try:
        trainer.run(workers)
    finally:
        workers.stop()
    save(trainer, options.out)


if __name__ == "__main__":
    main()
