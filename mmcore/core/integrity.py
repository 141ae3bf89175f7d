"""What always holds between the scheduler's parts, asserted."""

from __future__ import annotations

from collections import Counter

from mmcore.core.encoder_cache_manager import EncoderCacheManager
from mmcore.core.kv_cache_manager import KVCacheManager
from mmcore.core.sequence import ItemState, Place, Sequence
from mmcore.core.sequence_table import SequenceTable


def check_table(table: SequenceTable, kv: KVCacheManager, encoder: EncoderCacheManager) -> None:
    """Every sequence is in one place and holds what that place allows; the pools count the same."""
    sequences = [s for request in table.requests.values() for s in request.sequences]
    running = [s for s in sequences if s.place is Place.RUNNING]
    assert table.running == sorted(running), "the running list is not the running sequences in order"
    assert set(table.waiting.members()) == {s for s in sequences if s.place is Place.WAITING}
    assert len(table.waiting) == len(table.waiting.members())
    assert table.num_parked == sum(s.place is Place.PARKED for s in sequences)
    _check_slots(table, sequences)
    for request in table.requests.values():
        assert request.num_pending == request.items.count(ItemState.PENDING)
        assert request.num_left > 0
    for sequence in sequences:
        _check_sequence(sequence, kv)
    kv.pool.check_integrity(Counter(b for s in running for b in s.blocks + s.cross_blocks))
    encoder.check_integrity(Counter(entry.number for s in running for entry in s.held.values()))
    if not table.requests:
        assert kv.pool.num_available == kv.pool.num_blocks, "blocks are held and nobody is left"


def _check_slots(table: SequenceTable, sequences: list[Sequence]) -> None:
    used = [s.slot for s in sequences if s.slot >= 0]
    used += [slot for r in table.requests.values() if r.beams is not None for slot in r.beams.slots]
    assert len(used) <= table.max_batch_size
    assert sorted(used + table.free_slots) == list(range(table.max_batch_size)), (
        "a slot is lost or used twice"
    )


def _check_sequence(sequence: Sequence, kv: KVCacheManager) -> None:
    name = f"sequence {sequence.index} of {sequence.request_id!r}"
    if sequence.place is not Place.RUNNING:
        holds = sequence.blocks or sequence.cross_blocks or sequence.held
        assert not holds, f"{name} holds {holds} and does not run"
        assert sequence.num_computed_tokens == 0 or sequence.has_ended, f"{name} has computed and lost it"
    if not sequence.blocks:
        return
    computed, size = sequence.num_computed_tokens, kv.block_size
    assert computed <= len(sequence.blocks) * size, f"{name}: tokens without blocks"
    assert len(sequence.token_ids) <= sequence.last_position + 1, f"{name} has too many tokens"
    assert len(set(sequence.blocks + sequence.cross_blocks)) == len(sequence.blocks) + len(
        sequence.cross_blocks
    )
    if computed < sequence.decode_limit:
        assert kv.pool.is_writable(sequence.blocks[computed // size]), (
            f"{name} is about to write a shared block"
        )
    ends = sequence.request.layout.item_ends
    assert all(ends.get(item, computed + 1) > computed for item in sequence.held), (
        f"{name} holds what it has used"
    )
