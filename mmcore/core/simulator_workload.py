"""Requests as a busy server sees them: pictures of mixed sizes, much that is shared, bursts, and trouble."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from mmcore.core.simulator_device import SimulatedRequest
from mmcore.request import (
    EncodeCost,
    EncodedSource,
    ItemPlan,
    PlaceholderRange,
    PreparedItem,
    PreparedRequest,
    Rows,
)
from mmcore.sampling_params import SamplingParams

PLACEHOLDER = 0
NUM_WORDS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Shares are between 0 and 1, sizes in tokens, times in simulated seconds. A seed is a workload."""

    requests: int
    seed: int = 0
    requests_per_second: float = 28.0
    burst_share: float = 0.02
    """Of arrivals, those that bring up to ``burst_size`` others with them."""
    burst_size: int = 100
    prompt_tokens: tuple[int, int] = (16, 400)
    answer_tokens: tuple[int, int] = (1, 96)
    max_tokens: int = 80
    """So some answers end by their length."""
    system_prompts: int = 8
    """Shared beginnings, of so many tokens each:"""
    opening_tokens: tuple[int, int] = (64, 512)
    picture_share: float = 0.5
    most_pictures: int = 3
    picture_rows: tuple[int, ...] = (16, 64, 144, 256, 576, 1024)
    atomic_share: float = 0.05
    bytes_per_row: int = 7168
    flops_per_row: int = 2 * 10**9
    popular_pictures: int = 200
    popular_share: float = 0.5
    """Of pictures, those that others send too."""
    several_share: float = 0.05
    """Of requests, those with ``n`` from 2 to 4."""
    priorities: tuple[int, ...] = (0, 0, 0, 1, 2)
    abort_share: float = 0.03
    broken_share: float = 0.005
    late_share: float = 0.005
    """Of requests, those whose first picture takes 1 to 60 seconds longer."""
    fault_share: float = 0.002
    """Of requests, those that the runner fails on."""
    huge_share: float = 0.001
    """Of requests, those whose prompt is a thousand times as long; of pictures, those of ``huge_rows``."""
    huge_rows: int = 16_384

    def __iter__(self) -> Iterator[SimulatedRequest]:
        source = _Source(self)
        time = 0.0
        number = 0
        while number < self.requests:
            time += source.random.expovariate(self.requests_per_second)
            burst = source.burst()
            for _ in range(min(burst, self.requests - number)):
                yield source.request(number, time)
                number += 1


class _Source:
    """Draws requests; what is shared is drawn once."""

    def __init__(self, workload: Workload) -> None:
        self._load = workload
        self.random = Random(workload.seed)
        lengths = (self.random.randint(*workload.opening_tokens) for _ in range(workload.system_prompts))
        self._openings = [self._words(length) for length in lengths]
        self._params = [SamplingParams(n=n) for n in range(1, 5)]
        self._next_picture = workload.popular_pictures

    def _words(self, count: int) -> list[int]:
        return [2 + word for word in self.random.choices(range(NUM_WORDS), k=count)]

    def _happens(self, share: float) -> bool:
        return self.random.random() < share

    def burst(self) -> int:
        return self.random.randint(1, self._load.burst_size) if self._happens(self._load.burst_share) else 1

    def request(self, number: int, arrival: float) -> SimulatedRequest:
        load, random = self._load, self.random
        prepared = self._prepared(number)
        answer = random.randint(*load.answer_tokens)
        has_pictures = bool(prepared.items)
        is_late = has_pictures and self._happens(load.late_share)
        return SimulatedRequest(
            prepared=prepared,
            arrival=arrival,
            answer_tokens=answer,
            max_tokens=load.max_tokens,
            abort_after=random.expovariate(0.5) if self._happens(load.abort_share) else None,
            broken_items=frozenset({0}) if has_pictures and self._happens(load.broken_share) else frozenset(),
            late_items={0: random.uniform(1.0, 60.0)} if is_late else {},
            fails_at=random.randint(1, answer) if self._happens(load.fault_share) else None,
        )

    def _prepared(self, number: int) -> PreparedRequest:
        load, random = self._load, self.random
        tokens = list(random.choice(self._openings))
        items: list[PreparedItem] = []
        ranges: list[PlaceholderRange] = []
        if self._happens(load.picture_share):
            for _ in range(random.randint(1, load.most_pictures)):
                item = self._picture()
                ranges.append(PlaceholderRange(len(tokens), item.plan.rows, len(items), 0))
                items.append(item)
                tokens += [PLACEHOLDER] * item.plan.rows
                tokens.append(2 + len(items))
        tokens += self._words(random.randint(*load.prompt_tokens))
        if self._happens(load.huge_share):
            tokens *= 1000
        return PreparedRequest(
            request_id=f"r{number}",
            token_ids=tuple(tokens),
            sampling=self._params[random.randint(1, 3) if self._happens(load.several_share) else 0],
            root_key=bytes(32),
            items=tuple(items),
            ranges=tuple(ranges),
            priority=random.choice(load.priorities),
        )

    def _picture(self) -> PreparedItem:
        """A number is a content; its size follows from it, as a file's does."""
        load = self._load
        if self._happens(load.popular_share):
            number = self.random.randrange(load.popular_pictures)
        else:
            number = self._next_picture
            self._next_picture += 1
        draw = Random(number)
        rows = load.huge_rows if draw.random() < load.huge_share else draw.choice(load.picture_rows)
        key = number.to_bytes(32, "little")
        return PreparedItem(
            modality="image",
            source=EncodedSource(b""),
            content_digest=key,
            plan=ItemPlan((Rows(rows),), rows, 3584, atomic=draw.random() < load.atomic_share),
            cost=EncodeCost(load.flops_per_row * rows, load.bytes_per_row * rows),
            processor_key=key,
            encoder_key=key,
        )
