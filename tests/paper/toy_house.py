"""A paper family's way through the real inputs, keys, scheduler and caches, with `ToyRunner` at the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from paper.asks import Ask
from paper.families import Family
from paper.toy_runner import ToyRunner

from mmcore.adapter import Generation, StopRule
from mmcore.core.admission import SchedulerLimits
from mmcore.core.block_pool import BlockPool
from mmcore.core.encoder_cache_manager import EncoderCacheManager
from mmcore.core.kv_cache_manager import BlockKey, KVCacheManager
from mmcore.core.output import ModelRunnerOutput, SchedulerOutput, TokenLogprobs
from mmcore.core.scheduler import Scheduler
from mmcore.core.sequence import StopConditions
from mmcore.errors import MediaFormatError
from mmcore.inputs.hashing import block_key
from mmcore.inputs.pipeline import InputPipeline
from mmcore.request import EncoderInput, PreparedItem, PreparedRequest, Result


@dataclass(frozen=True, kw_only=True)
class Room:
    """How much a step and the caches hold; ``lateness`` counts steps until an item is preprocessed."""

    tokens: int = 4096
    batch: int = 16
    blocks: int = 1024
    block_size: int = 4
    encoder_bytes: int = 1 << 20
    reuse: bool = True
    overlap: bool = False
    lateness: int = 0
    block_key: BlockKey = block_key


@dataclass
class Heard:
    """One sequence so far."""

    rule: StopRule | None
    ids: list[int] = field(default_factory=list)
    scores: list[TokenLogprobs] = field(default_factory=list)


@dataclass
class Link:
    """One request, one of a chain."""

    request: PreparedRequest
    previous: Result | None
    sequences: list[Heard]


@dataclass(frozen=True)
class Answer:
    """``links`` holds the token ids of each link, by sequence."""

    links: tuple[tuple[tuple[int, ...], ...], ...] = ()
    result: Result | None = None


class ToyHouse:
    def __init__(self, family: Family, room: Room) -> None:
        self.adapter, self.room = family.adapter(), room
        self.pipeline = InputPipeline(self.adapter, family.files)
        self.runner = ToyRunner(self.adapter, room.block_size)
        pool = BlockPool(room.blocks, room.block_size)
        self.scheduler = Scheduler(
            SchedulerLimits(max_num_tokens=room.tokens, max_batch_size=room.batch, encoder_work=1 << 40),
            KVCacheManager(pool, room.block_key, room.reuse),
            EncoderCacheManager(room.encoder_bytes),
        )
        self.links: dict[str, Link] = {}
        self.answers: dict[str, Answer] = {}
        self.outputs: list[SchedulerOutput] = []
        self.requests: list[PreparedRequest] = []
        """Every link that was added, in order."""
        self.broken: set[str] = set()
        """Requests whose media cannot be decoded."""
        self._late: deque[tuple[int, str, int]] = deque()
        self._in_flight: list[tuple[SchedulerOutput, ModelRunnerOutput]] = []

    def ask(self, name: str, ask: Ask) -> PreparedRequest:
        request = self.pipeline.prepare(ask.prompt(self.adapter), ask.sampling, request_id=name)
        self.add(request)
        return request

    def add(self, request: PreparedRequest, previous: Result | None = None) -> None:
        params, decoding = request.sampling, self.adapter.decoding
        stop = StopConditions(frozenset(decoding.defaults.stop_ids), params.max_tokens or 8)
        wanted = self.scheduler.add(request, stop)
        self.requests.append(request)
        self.answers.setdefault(request.request_id, Answer())
        heard = [Heard(decoding.stop_rule(request)) for _ in range(params.n)]
        self.links[request.request_id] = Link(request, previous, heard)
        self._start_items([(request.request_id, item) for item in wanted])

    def run(self, max_steps: int = 5000) -> dict[str, Answer]:
        """Until all is answered, follow-ups too. Everything is free then."""
        for _ in range(max_steps):
            if self.scheduler.has_unfinished:
                self.step()
            elif self._in_flight:
                self._update(*self._in_flight.pop(0))
            else:
                self._check_free()
                return self.answers
        raise AssertionError(f"no end after {max_steps} steps: {sorted(self.links)}")

    def _check_free(self) -> None:
        stats = self.scheduler.stats()
        assert (stats.running, stats.waiting, stats.free_blocks) == (0, 0, self.room.blocks)

    def step(self) -> None:
        self._finish_items()
        output = self.scheduler.schedule()
        self._start_items(output.wanted)
        self.outputs.append(output)
        self._in_flight.append((output, self.runner.execute(output)))
        self.scheduler.check_integrity()
        if len(self._in_flight) > self.room.overlap:
            self._update(*self._in_flight.pop(0))
            self.scheduler.check_integrity()

    def preprocess(self, item: PreparedItem) -> EncoderInput:
        return self.pipeline.preprocess(item)

    def abort(self, name: str) -> None:
        """Nothing happens where it has ended."""
        self.scheduler.abort(name)
        self.links.pop(name, None)

    def _start_items(self, items: Iterable[tuple[str, int]]) -> None:
        self._late.extend((len(self.outputs) + self.room.lateness, name, item) for name, item in items)

    def _finish_items(self) -> None:
        while self._late and self._late[0][0] <= len(self.outputs):
            _, name, item = self._late.popleft()
            if name in self.broken:
                self._fail(name, item)
            elif name in self.links:
                prepared = self.links[name].request.items[item]
                self.runner.feed(name, item, self.preprocess(prepared))
                self.scheduler.item_ready(name, item)

    def _fail(self, name: str, item: int) -> None:
        self.scheduler.item_failed(name, item, MediaFormatError("broken"))
        self.links.pop(name, None)

    def _update(self, output: SchedulerOutput, result: ModelRunnerOutput) -> None:
        update = self.scheduler.update(output, result)
        ended = list(update.ended)
        for row, name, index in zip(update.rows, update.request_ids, update.sequences, strict=True):
            heard, token = self.links[name].sequences[index], result.token_ids[sum(result.token_counts[:row])]
            scores = result.logprobs[row][0]
            heard.ids.append(token)
            heard.scores.append(scores)
            if heard.rule and heard.rule.observe(token, scores.logit, scores.chosen):
                ended += self.scheduler.finish(name, index, "stop")
        for end in ended:
            assert end.error is None, end.error
            if end.request_done:
                self._close(self.links.pop(end.request_id))

    def _close(self, link: Link) -> None:
        decoding, name, first = self.adapter.decoding, link.request.request_id, link.sequences[0]
        text = self.pipeline.tokenizer.decode(first.ids)
        generation = Generation(
            request=link.request,
            ids=tuple(first.ids),
            text=text,
            logits=tuple(scores.logit for scores in first.scores) if first.rule else (),
            logprobs=tuple(scores.chosen for scores in first.scores) if first.rule else (),
            previous=link.previous,
        )
        result = decoding.finish(generation)
        ids = tuple(tuple(heard.ids) for heard in link.sequences)
        self.answers[name] = Answer((*self.answers[name].links, ids), result)
        follow_up = decoding.follow_up(link.request, result)
        if follow_up is not None:
            self.add(self.pipeline.prepare_follow_up(link.request, follow_up), result)
