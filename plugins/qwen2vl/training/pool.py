"""Rows drawn by CPU processes, kept in ring pools on the GPU that are refilled all the time."""

from __future__ import annotations

import json
import mmap
import multiprocessing as mp
import os
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from random import Random

import numpy as np
import torch
from kinds import KINDS
from render import load_fonts
from rows import RowBuilder
from text import load_words
from torch import Tensor

BATCH = 64  # rows a slot
SLOTS = 96
SLOT_BYTES = BATCH * max(kind.entry_bytes() for kind in KINDS)


def load_builder(data: Path) -> RowBuilder:
    """The row builder over training words, training fonts and easy-vqa's training questions."""
    questions = [tuple(q) for q in json.loads((data / "easy_vqa.json").read_text())["train"]]
    by_picture: dict[int, list[tuple[str, str]]] = {}
    for question, answer, number in questions:
        by_picture.setdefault(number, []).append((question, answer))
    return RowBuilder(load_words(data / "words.txt", False), load_fonts(data, False), questions, by_picture)


def _work(
    memory: mmap.mmap, free: SimpleQueue[int], ready: SimpleQueue[tuple[int, int]], data: Path, seed: str
) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    builder, rng = load_builder(data), Random(seed)
    weights = [kind.rows for kind in KINDS]
    while True:
        number = rng.choices(range(len(KINDS)), weights)[0]
        kind = KINDS[number]
        size = kind.entry_bytes()
        slot = free.get()
        view = np.frombuffer(memory, np.uint8, BATCH * size, slot * SLOT_BYTES).reshape(BATCH, size)
        for i in range(BATCH):
            view[i] = builder.entry(rng, kind)
        ready.put((slot, number))


class Workers:
    """Processes that fill slots of one shared memory block. Start them before CUDA is touched."""

    def __init__(self, count: int, data: Path, seed: str) -> None:
        context = mp.get_context("fork")
        self.memory = mmap.mmap(-1, SLOTS * SLOT_BYTES)
        self.free: SimpleQueue[int] = context.SimpleQueue()
        self.ready: SimpleQueue[tuple[int, int]] = context.SimpleQueue()
        for slot in range(SLOTS):
            self.free.put(slot)
        self.processes = [
            context.Process(
                target=_work, args=(self.memory, self.free, self.ready, data, f"{seed}/{i}"), daemon=True
            )
            for i in range(count)
        ]
        for process in self.processes:
            process.start()

    def stop(self) -> None:
        """Ends the processes."""
        for process in self.processes:
            process.terminate()


@dataclass
class Ring:
    """One kind's pool: entries uint8 [capacity, bytes], the fill level on host and device."""

    entries: Tensor
    level: Tensor
    filled: int = 0
    at: int = 0

    def sample(self, rows: int) -> Tensor:
        """`rows` random entries; the level is read on the device."""
        index = (torch.rand(rows, device=self.entries.device) * self.level).long()
        return self.entries.index_select(0, index)


class Pools:
    """A ring for each kind, and the pinned staging buffers that feed them."""

    def __init__(self, device: torch.device, factor: int) -> None:
        self.device = device
        self.rings = []
        for kind in KINDS:
            capacity = max(2, kind.rows * factor // BATCH) * BATCH
            entries = torch.zeros(capacity, kind.entry_bytes(), dtype=torch.uint8, device=device)
            self.rings.append(Ring(entries, torch.zeros((), device=device)))
        pin = device.type == "cuda"
        self.staging = [torch.zeros(SLOT_BYTES, dtype=torch.uint8, pin_memory=pin) for _ in range(24)]
        self.events: list[torch.cuda.Event | None] = [None] * len(self.staging)
        self.turn = 0
        self.received = 0

    def ready(self) -> bool:
        """True once every kind has rows to draw from."""
        return all(ring.filled >= BATCH for ring in self.rings)

    def feed(self, workers: Workers, most: int) -> int:
        """Moves up to `most` finished slots to the device; returns how many."""
        moved = 0
        while moved < most and not workers.ready.empty():
            slot, number = workers.ready.get()
            self._store(workers.memory, slot, number)
            workers.free.put(slot)
            moved += 1
        return moved

    def _store(self, memory: mmap.mmap, slot: int, number: int) -> None:
        ring, size = self.rings[number], KINDS[number].entry_bytes()
        event = self.events[self.turn]
        if event is not None:
            event.synchronize()
        stage = self.staging[self.turn][: BATCH * size]
        stage.numpy()[:] = np.frombuffer(memory, np.uint8, BATCH * size, slot * SLOT_BYTES)
        ring.entries[ring.at : ring.at + BATCH].copy_(stage.view(BATCH, size), non_blocking=True)
        if self.device.type == "cuda":
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
            self.events[self.turn] = event
        self.turn = (self.turn + 1) % len(self.staging)
        ring.at = (ring.at + BATCH) % ring.entries.shape[0]
        if ring.filled < ring.entries.shape[0]:
            ring.filled = min(ring.entries.shape[0], ring.filled + BATCH)
            ring.level.fill_(ring.filled)
        self.received += BATCH
