"""Which blocks a sequence has, which it finds in the cache, and which it copies before it writes.

    block 0      block 1      block 2
    [t t t t]    [t i i i]    [i t . .]      t token, i row of an item, . not computed yet
     key K0       key K1       no key: written by this sequence only
     K0 = H(root, tokens)  K1 = H(K0, tokens, (item key, place of its rows))

A block enters the prefix cache when the step that filled it has come back without an error for its row,
never earlier: what is shared is complete, and nobody writes it again. Whoever has to write a block that is
shared or cached (the tail of a forked sequence) copies it first. Cross-KV lies in the same pool, under
(cross key, index of the block); its last block is shared even when partly filled, for it is never written
again either.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Tokens
from dataclasses import dataclass

from mmcore.core.block_pool import BlockPool
from mmcore.core.media_layout import MediaKey, MediaLayout
from mmcore.core.output import BlockCopy
from mmcore.core.prefix_writers import PrefixWriters
from mmcore.core.sequence import NEVER, RequestState, Sequence
from mmcore.request import CrossStates, PreparedRequest

BlockKey = Callable[[bytes, Tokens[int], Tokens[MediaKey]], bytes]
"""(parent key, token ids, media) to key; `mmcore.inputs.hashing.block_key`."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a sequence would take to start now."""

    prefix: list[int]
    """Blocks whose content is cached."""
    cross: list[int]
    """Cross-KV that is cached, or empty."""
    num_new: int
    num_new_cross: int
    num_taken: int
    """Blocks that are available now and would not be: new ones, and hits that nobody holds."""


class KVCacheManager:
    """Blocks of sequences, over one pool."""

    def __init__(self, pool: BlockPool, block_key: BlockKey, enable_reuse: bool = True) -> None:
        self.pool = pool
        self.block_size = pool.block_size
        self.enable_reuse = enable_reuse
        self._block_key = block_key
        self._cross_writers: dict[bytes, RequestState] = {}
        self._prefix_writers = PrefixWriters()

    def num_blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    # ------------------------------------------------------------------ keys

    def prompt_keys(self, prepared: PreparedRequest, layout: MediaLayout) -> list[bytes]:
        """Keys of the prompt's full blocks, empty without reuse."""
        keys: list[bytes] = []
        if self.enable_reuse:
            self._extend(keys, prepared.token_ids, prepared.root_key, layout)
        return keys

    def _extend(self, keys: list[bytes], ids: Tokens[int], root: bytes, layout: MediaLayout) -> None:
        size = self.block_size
        parent = keys[-1] if keys else root
        for start in range(len(keys) * size, len(ids) - size + 1, size):
            stop = start + size
            parent = self._block_key(parent, ids[start:stop], layout.media_in(start, stop))
            keys.append(parent)

    def _extend_keys_of(self, sequence: Sequence) -> None:
        request = sequence.request
        self._extend(sequence.block_keys, sequence.token_ids, request.prepared.root_key, request.layout)

    # ------------------------------------------------------------------ hits

    def find_prefix(self, keys: list[bytes], num_tokens: int, layout: MediaLayout) -> list[int]:
        """The longest cached prefix that leaves a token to compute and cuts no atomic item."""
        found: list[int] = []
        for key in keys[: (num_tokens - 1) // self.block_size]:
            block = self.pool.find(key)
            if block is None:
                break
            found.append(block)
        while (uncut := layout.uncut(len(found) * self.block_size)) < len(found) * self.block_size:
            del found[uncut // self.block_size :]
        return found

    def find_cross(self, cross: CrossStates | None) -> list[int]:
        """All blocks of these states, or none."""
        blocks: list[int] = []
        for key in self._cross_keys(cross):
            block = self.pool.find(key)
            if block is None:
                return []
            blocks.append(block)
        return blocks

    def is_cross_in_flight(self, request: RequestState) -> bool:
        """Another request is writing these states: they can be shared when its step has come back."""
        cross = request.prepared.cross
        return cross is not None and self._cross_writers.get(cross.key, request) is not request

    def is_prefix_in_flight(self, sequence: Sequence) -> bool:
        """Another sequence is computing a good part of what this one could find in the cache then."""
        if not self.enable_reuse:
            return False
        found = self.find_prefix(sequence.block_keys, len(sequence.token_ids), sequence.request.layout)
        key = self._prefix_writers.awaited_key(sequence, len(found))
        return key is not None and self.pool.find(key) is None

    def _cross_keys(self, cross: CrossStates | None) -> list[bytes]:
        if cross is None or not self.enable_reuse:
            return []
        return [cross.key + index.to_bytes(4, "little") for index in range(self.num_blocks_for(cross.length))]

    # ------------------------------------------------------------------ start

    def claim(self, sequence: Sequence) -> Claim:
        """Blocks for all known tokens and the cross states."""
        request = sequence.request
        cross_states = request.prepared.cross
        prefix: list[int] = []
        if self.enable_reuse:
            self._extend_keys_of(sequence)
            prefix = self.find_prefix(sequence.block_keys, len(sequence.token_ids), request.layout)
        cross = self.find_cross(cross_states)
        num_new_cross = self.num_blocks_for(cross_states.length) if cross_states and not cross else 0
        num_new = self.num_blocks_for(len(sequence.token_ids)) - len(prefix)
        idle_hits = sum(map(self.pool.is_cached, prefix)) + sum(map(self.pool.is_cached, cross))
        return Claim(prefix, cross, num_new, num_new_cross, num_new + num_new_cross + idle_hits)

    def start(self, sequence: Sequence, claim: Claim) -> None:
        """Take what ``claim`` says; the caller saw that it is available."""
        self.pool.retain(claim.prefix)
        self.pool.retain(claim.cross)
        sequence.blocks = claim.prefix + self.pool.allocate(claim.num_new)
        sequence.cross_blocks = claim.cross or self.pool.allocate(claim.num_new_cross)
        sequence.num_computed_tokens = len(claim.prefix) * self.block_size
        self._prefix_writers.announce(sequence, len(claim.prefix))
        self.expect(sequence, len(claim.prefix))
        if claim.num_new_cross:
            sequence.is_cross_written = False
            self._announce_cross(sequence.request)

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """``child`` shares the prompt's blocks and computes the last prompt token again, for its logits."""
        prompt = parent.request.prepared.num_tokens
        restart = parent.request.layout.uncut(prompt - 1)
        child.blocks = parent.blocks[: self.num_blocks_for(prompt)]
        child.cross_blocks = list(parent.cross_blocks)
        self.pool.retain(child.blocks)
        self.pool.retain(child.cross_blocks)
        child.num_computed_tokens = restart
        self.expect(child, restart // self.block_size)
        child.is_forked = parent.is_forked = True
        parent.decode_limit = 0

    def expect(self, sequence: Sequence, num_registered: int) -> None:
        """So many of its leading blocks are known to the pool."""
        sequence.num_registered = num_registered
        sequence.register_from((num_registered + 1) * self.block_size if self.enable_reuse else NEVER)

    # ------------------------------------------------------------------ grow and write

    def num_missing(self, sequence: Sequence, stop: int) -> int:
        """Blocks to allocate before tokens [num_computed_tokens, stop) can be written."""
        new = self.num_blocks_for(stop) - len(sequence.blocks)
        return new + len(self._shared_indices(sequence)) if sequence.is_forked else new

    def make_writable(self, sequence: Sequence, stop: int) -> list[tuple[int, BlockCopy]]:
        """Allocate what is missing; gives (index in the table, copy) of each block that was replaced."""
        blocks = sequence.blocks
        copies = [(index, self._replace(blocks, index)) for index in self._shared_indices(sequence)]
        sequence.is_forked = False
        blocks += self.pool.allocate(self.num_blocks_for(stop) - len(blocks))
        return copies

    def _shared_indices(self, sequence: Sequence) -> list[int]:
        """Blocks that a forked sequence is about to write and others read, or may find in the cache."""
        first, end = sequence.num_computed_tokens // self.block_size, len(sequence.blocks)
        return [i for i in range(first, end) if not self.pool.is_writable(sequence.blocks[i])]

    def _replace(self, blocks: list[int], index: int) -> BlockCopy:
        source, target = blocks[index], self.pool.allocate(1)[0]
        self.pool.release([source])
        blocks[index] = target
        return BlockCopy(source, target)

    def release(self, sequence: Sequence) -> None:
        """Let go of everything; what is cached stays findable."""
        self._prefix_writers.withdraw(sequence)
        self.pool.release(sequence.blocks)
        self.pool.release(sequence.cross_blocks)

    # ------------------------------------------------------------------ what steps have computed

    def register(self, sequence: Sequence, num_tokens: int) -> None:
        """A step came back: ``num_tokens`` of the sequence are computed. Full blocks enter the cache."""
        num_full = num_tokens // self.block_size
        if len(sequence.block_keys) < num_full:
            self._extend_keys_of(sequence)
        for index in range(sequence.num_registered, num_full):
            self.pool.register(sequence.blocks[index], sequence.block_keys[index])
        self.expect(sequence, num_full)

    def _announce_cross(self, request: RequestState) -> None:
        if request.prepared.cross is not None and self.enable_reuse:
            self._cross_writers[request.prepared.cross.key] = request

    def cross_came_back(self, sequence: Sequence, blocks: list[int]) -> None:
        """The step that wrote ``blocks`` came back. They are shared if the sequence still has them.

        A sequence that failed, ended or was preempted since has let go of them.
        """
        cross = sequence.request.prepared.cross
        assert cross is not None
        if self._cross_writers.get(cross.key) is sequence.request:
            del self._cross_writers[cross.key]
        if sequence.cross_blocks is blocks:
            for block, key in zip(blocks, self._cross_keys(cross), strict=False):
                self.pool.register(block, key)
