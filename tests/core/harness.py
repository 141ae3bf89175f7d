"""A scheduler and a simulated runner, driven step by step, each answer compared with the right one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from core.sample_requests import block_key
from core.simulated_runner import SimulatedRunner, candidates, right_cells, sample

from mmcore.core.admission import SchedulerLimits
from mmcore.core.block_pool import BlockPool
from mmcore.core.encoder_cache_manager import EncoderCacheManager
from mmcore.core.kv_cache_manager import KVCacheManager
from mmcore.core.output import EndedSequence, ModelRunnerOutput, SchedulerOutput, StepUpdate
from mmcore.core.scheduler import Scheduler
from mmcore.core.sequence import StopConditions
from mmcore.errors import MMCoreError
from mmcore.request import FinishReason, PreparedRequest

BlockKey = Callable[[bytes, Sequence[int], Sequence[tuple[bytes, int]]], bytes]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    num_blocks: int = 64
    block_size: int = 4
    encoder_bytes: int = 1000
    max_num_tokens: int = 32
    max_batch_size: int = 4
    encoder_work: int = 1000
    max_chunk_tokens: int | None = None
    ageing_steps: int = 50
    reuse: bool = True


def rows(out: SchedulerOutput) -> list[tuple[int, int, int, bool]]:
    """(slot, start, count, samples) of each."""
    return list(zip(out.row_slots, out.row_starts, out.row_counts, out.row_samples, strict=True))


def right_tokens(request: PreparedRequest, stop: StopConditions, sequence: int) -> list[int]:
    """What the request must generate, a function of the request alone."""
    tokens = list(request.token_ids)
    for generated in range(1, stop.max_tokens + 1):
        token = sample(right_cells(request, tokens)[-1], sequence)
        tokens.append(token)
        if token in stop.stop_ids and generated >= stop.min_tokens:
            break
    return tokens[request.num_tokens :]


def right_beams(request: PreparedRequest, stop: StopConditions) -> list[tuple[int, ...]]:
    """What a beam search must come to, best first: all continuations of each round in one sorted list."""
    params, prompt = request.sampling, list(request.token_ids)
    penalty = 1.0 if params.length_penalty is None else params.length_penalty
    width, looked_at = params.num_sequences, params.num_sequences * max(2, 1 + len(stop.stop_ids))
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    done: list[tuple[float, tuple[int, ...]]] = []
    for length in range(1, stop.max_tokens + 1):
        grown = [
            (score + more, (*ids, token))
            for score, ids in live
            for token, more in candidates(right_cells(request, [*prompt, *ids])[-1])
        ]
        grown = sorted(grown, key=lambda one: -one[0])[:looked_at]
        ends = [
            length == stop.max_tokens or (ids[-1] in stop.stop_ids and length >= stop.min_tokens)
            for _, ids in grown
        ]
        if not (params.early_stopping is True and len(done) == width):
            done += [(s / length**penalty, i) for (s, i), e in zip(grown[:width], ends, strict=False) if e]
            done = sorted(done, key=lambda one: -one[0])[:width]
        live = [one for one, end in zip(grown, ends, strict=True) if not end][:width]
        if not live or (len(done) == width and params.early_stopping is True):
            break
        far = stop.max_tokens if params.early_stopping == "never" and penalty > 0 else length
        if len(done) == width and live[0][0] / far**penalty <= done[-1][0]:
            break
    return [ids for _, ids in done]


@dataclass
class Live:
    request: PreparedRequest
    stop: StopConditions
    tokens: dict[int, list[int]] = field(default_factory=dict)
    ended: dict[int, EndedSequence] = field(default_factory=dict)
    pending: set[int] = field(default_factory=set)


class Harness:
    """``overlap``: a step is laid out and executed before the one before it is updated."""

    def __init__(self, sizes: Sizes = Sizes(), *, overlap: bool = False, key: BlockKey = block_key) -> None:
        self.sizes = sizes
        self.overlap = overlap
        self.pool = BlockPool(sizes.num_blocks, sizes.block_size)
        self.encoder = EncoderCacheManager(sizes.encoder_bytes)
        limits = SchedulerLimits(
            max_num_tokens=sizes.max_num_tokens,
            max_batch_size=sizes.max_batch_size,
            encoder_work=sizes.encoder_work,
            max_chunk_tokens=sizes.max_chunk_tokens,
            ageing_steps=sizes.ageing_steps,
        )
        self.scheduler = Scheduler(limits, KVCacheManager(self.pool, key, sizes.reuse), self.encoder)
        self.runner = SimulatedRunner(sizes.block_size)
        self.live: dict[str, Live] = {}
        self.done: dict[str, Live] = {}
        self.outputs: deque[tuple[SchedulerOutput, ModelRunnerOutput]] = deque()
        self.faulty: set[str] = set()
        """Requests that were told to fail: nobody else may."""

    # ------------------------------------------------------------------ requests

    def add(self, request: PreparedRequest, stop: StopConditions, *, ready: bool = True) -> tuple[int, ...]:
        items = self.scheduler.add(request, stop)
        self.live[request.request_id] = Live(request, stop, pending=set(items))
        for item in items if ready else ():
            self.ready(request.request_id, item)
        return items

    def ready(self, request_id: str, item: int) -> None:
        self.live[request_id].pending.discard(item)
        self.runner.fed.add((request_id, item))
        self.scheduler.item_ready(request_id, item)

    def fail_item(self, request_id: str, item: int, error: MMCoreError) -> None:
        self.live[request_id].pending.discard(item)
        self.faulty.add(request_id)
        self._note_ended(self.scheduler.item_failed(request_id, item, error))

    def abort(self, request_id: str) -> None:
        self._note_ended(self.scheduler.abort(request_id))

    def finish(self, request_id: str, sequence: int) -> None:
        params = self.live[request_id].request.sampling
        reason: FinishReason = "abort" if params.use_beam_search else "stop"  # a beam ends with all others
        self._note_ended(self.scheduler.finish(request_id, sequence, reason, "enough"))

    # ------------------------------------------------------------------ steps

    def step(self, failing: frozenset[int] = frozenset()) -> SchedulerOutput:
        out = self.schedule(failing)
        if len(self.outputs) > self.overlap or not self.scheduler.has_ready_work:
            self.update()
        return out

    def schedule(self, failing: frozenset[int] = frozenset()) -> SchedulerOutput:
        parked = self.scheduler._table.num_parked
        must_progress = self.scheduler.has_ready_work and not self.outputs
        out = self.scheduler.schedule()
        self.scheduler.check_integrity()
        self._check_budgets(out)
        for request_id, item in out.wanted:
            assert item not in self.live[request_id].pending
            assert (request_id, item) not in self.runner.fed, "what the runner has is asked for again"
            self.live[request_id].pending.add(item)
        has_parked = self.scheduler._table.num_parked > parked
        assert out.row_slots or has_parked or not must_progress, "nothing was scheduled and work was ready"
        result = self.runner.execute(out, failing)
        self.faulty |= {self.runner.slots[slot].request.request_id for slot in result.errors}
        self.outputs.append((out, result))
        return out

    def update(self) -> StepUpdate:
        update = self.scheduler.update(*self.outputs.popleft())
        self.scheduler.check_integrity()
        after = 0
        for name, sequence, count in zip(
            update.request_ids, update.sequences, update.token_counts, strict=True
        ):
            before, after = after, after + count
            self._find(name).tokens.setdefault(sequence, []).extend(update.token_ids[before:after])
        self._note_ended(update.ended)
        return update

    def run(self, limit: int = 2000) -> None:
        """Until nothing is left; every pending item becomes ready."""
        for _ in range(limit):
            for name in list(self.live):
                for item in sorted(self.live[name].pending):
                    self.ready(name, item)
            if not self.scheduler.has_unfinished:
                break
            self.step()
        assert not self.scheduler.has_unfinished, "the oldest request does not come to its end"
        while self.outputs:
            self.update()
        self.schedule()  # tells the runner what it may forget
        self.update()
        self._check_idle()

    # ------------------------------------------------------------------ checks

    def _find(self, name: str) -> Live:
        return self.live.get(name) or self.done[name]

    def _note_ended(self, ended: Sequence[EndedSequence]) -> None:
        for record in ended:
            live = self._find(record.request_id)
            assert record.sequence not in live.ended, "a sequence ends twice"
            live.ended[record.sequence] = record
            assert record.error is None or record.request_id in self.faulty, f"an innocent: {record}"
            self._check_tokens(live, record)
            assert record.request_done == (len(live.ended) == live.request.sampling.num_sequences)
            if record.request_done:
                self.done[record.request_id] = self.live.pop(record.request_id)

    def _check_tokens(self, live: Live, record: EndedSequence) -> None:
        """All the right tokens when it ended by itself, else the first of them."""
        if live.request.sampling.use_beam_search:
            if record.reason in ("length", "stop") and record.stop_reason != "enough":
                right_ids = right_beams(live.request, live.stop)[record.sequence]
                assert record.hypothesis is not None
                assert record.hypothesis.token_ids == right_ids, f"{record.request_id}: another hypothesis"
            return
        right = right_tokens(live.request, live.stop, record.sequence)
        tokens = live.tokens.get(record.sequence, [])
        if record.reason == "length" or record.stop_reason in live.stop.stop_ids:
            assert tokens == right, f"{record.request_id} answers {tokens} and should {right}"
        else:
            assert tokens == right[: len(tokens)], f"{record.request_id} began {tokens}, should {right}"

    def _check_budgets(self, out: SchedulerOutput) -> None:
        assert out.num_tokens <= self.sizes.max_num_tokens
        requests = {slot: known.request for slot, known in self.runner.slots.items()}
        requests |= {new.slot: new.request for new in out.new_requests}
        work = [
            requests[slot].items[item].cost.work
            for slot, item in zip(out.encode_slots, out.encode_items, strict=True)
        ]
        alone = len(set(out.encode_slots)) <= 1
        assert sum(work) <= self.sizes.encoder_work or alone, "too much is encoded in one step"

    def _check_idle(self) -> None:
        assert not self.live
        assert not self.runner.slots, "the runner keeps slots"
        stats = self.scheduler.stats()
        assert stats.free_blocks == self.sizes.num_blocks
        assert (stats.running, stats.waiting) == (0, 0)
        assert set(self.runner.entries) == {e.number for e in self.encoder._entries.values()}
