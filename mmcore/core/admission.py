"""Limits of a step, and which requests can never be served within them."""

from __future__ import annotations

from dataclasses import dataclass

from mmcore.core.encoder_cache_manager import EncoderCacheManager
from mmcore.core.kv_cache_manager import KVCacheManager
from mmcore.core.media_layout import MediaLayout
from mmcore.core.sequence import StopConditions
from mmcore.errors import PromptError, RequestTooLargeError, SamplingParamsError, UnsupportedOptionError
from mmcore.request import PreparedRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """``max_num_tokens`` tokens and ``encoder_work`` floating point operations a step, slots of a batch."""

    max_num_tokens: int
    max_batch_size: int
    encoder_work: int
    max_chunk_tokens: int | None = None
    """Most tokens of one prompt in a step, so that a long one leaves some to those behind it. None: all."""
    max_beam_width: int = 16
    ageing_steps: int = 1000
    """A request overtakes those of the next better priority that came so many steps later."""


class Admission:
    """Refuses what can never fit, naming the setting to raise."""

    def __init__(self, limits: SchedulerLimits, kv: KVCacheManager, encoder: EncoderCacheManager) -> None:
        self._limits = limits
        self._kv = kv
        self._encoder = encoder

    def check(self, request: PreparedRequest, layout: MediaLayout, stop: StopConditions) -> None:
        """Raises `RequestTooLargeError`, or another `InputError` for what is no request at all."""
        name = f"request {request.request_id!r}"
        if not request.token_ids:
            raise PromptError(f"{name} has no tokens; hand in a prompt")
        if not isinstance(request.priority, int):  # it would fail the queue, and with it every request
            raise SamplingParamsError(
                f"{name}: priority is an integer, lower first, not {request.priority!r}"
            )
        if stop.max_tokens < 1:
            raise SamplingParamsError(f"{name}: max_tokens is {stop.max_tokens}; it must be at least 1")
        if request.cross and request.ranges:
            raise UnsupportedOptionError(
                f"{name} has placeholder ranges and cross states; one way is built yet"
            )
        self._check_beams(name, request)
        self._check_blocks(name, request, stop)
        self._check_encoder(name, request, layout)
        self._check_atomic(name, layout)

    def most_answer_tokens(self, request: PreparedRequest) -> int:
        """The longest answer that fits an empty KV cache beside the prompt; may be < 1."""
        width = request.sampling.num_sequences if request.sampling.use_beam_search else 1
        cross = self._kv.num_blocks_for(request.cross.length if request.cross else 0)
        blocks = self._kv.pool.num_blocks // width - cross
        return blocks * self._kv.pool.block_size - request.num_tokens + 1  # the last one is never computed

    def _check_beams(self, name: str, request: PreparedRequest) -> None:
        if not request.sampling.use_beam_search:
            return
        width, limits = request.sampling.num_sequences, self._limits
        for limit in ("max_beam_width", "max_batch_size"):
            most = getattr(limits, limit)
            if width > most:
                raise RequestTooLargeError(
                    f"{name}: beam_width {width} is past {limit}={most}; raise it, or search with fewer beams"
                )

    def _check_blocks(self, name: str, request: PreparedRequest, stop: StopConditions) -> None:
        tokens = request.num_tokens + stop.max_tokens - 1  # the last one is never computed
        cross = request.cross.length if request.cross else 0
        needed = self._kv.num_blocks_for(tokens) + self._kv.num_blocks_for(cross)
        if request.sampling.use_beam_search:  # all beams run at once, in the worst case with nothing shared
            needed *= request.sampling.num_sequences
        pool = self._kv.pool
        if needed > pool.num_blocks:
            beside = f" and {cross} cross-attention states" if cross else ""
            raise RequestTooLargeError(
                f"{name}: {request.num_tokens} prompt tokens, max_tokens {stop.max_tokens}{beside} need"
                f" {needed} KV blocks of {pool.block_size} tokens and the cache has {pool.num_blocks}; raise"
                " KvCacheConfig.max_tokens or free_gpu_memory_fraction, or lower max_tokens"
            )

    def _check_encoder(self, name: str, request: PreparedRequest, layout: MediaLayout) -> None:
        """Items that are held together must fit together."""
        for group in set(layout.groups.values()):
            sizes = {layout.keys[item]: request.items[item].cost.output_bytes for item in group}
            needed = sum(sizes.values())
            if needed > self._encoder.capacity_bytes:
                items = f"item {group[0]}" if len(group) == 1 else f"items {group[0]} to {group[-1]} together"
                raise RequestTooLargeError(
                    f"{name}: encoder output of {items} takes {needed} bytes and the encoder cache has"
                    f" {self._encoder.capacity_bytes}; raise encoder_cache_bytes"
                )

    def _check_atomic(self, name: str, layout: MediaLayout) -> None:
        budget = self._limits.max_num_tokens
        for found, atomic in zip(layout.ranges, layout.atomic, strict=True):
            if atomic and found.length > budget:
                raise RequestTooLargeError(
                    f"{name}: item {found.item} takes {found.length} tokens that must be computed in one step"
                    f" and a step has {budget}; raise max_num_tokens"
                )
