"""Prefix hits, forks, cross blocks: which blocks a sequence gets."""

from __future__ import annotations

from core.sample_requests import Picture, block_key, make_cross_request, make_request, stop_at

from mmcore.core.block_pool import BlockPool
from mmcore.core.kv_cache_manager import KVCacheManager
from mmcore.core.media_layout import layout_of
from mmcore.core.output import BlockCopy
from mmcore.core.sequence import RequestState, Sequence, first_sequence, next_sequence
from mmcore.request import PreparedRequest


def manager(num_blocks: int = 20, reuse: bool = True) -> KVCacheManager:
    return KVCacheManager(BlockPool(num_blocks, 4), block_key, reuse)


def sequence_of(kv: KVCacheManager, request: PreparedRequest) -> Sequence:
    layout = layout_of(request)
    state = RequestState(
        request, stop_at(9), (0, 0), layout, kv.prompt_keys(request, layout), [], num_left=request.sampling.n
    )
    return first_sequence(state)


def computed(kv: KVCacheManager, request: PreparedRequest) -> Sequence:
    """Started, its prompt computed, its first token sampled."""
    sequence = sequence_of(kv, request)
    kv.start(sequence, kv.claim(sequence))
    sequence.num_computed_tokens = request.num_tokens
    kv.register(sequence, request.num_tokens)
    if request.cross:
        kv.cross_came_back(sequence, sequence.cross_blocks)
    sequence.token_ids.append(50)
    return sequence


def hit(kv: KVCacheManager, request: PreparedRequest) -> int:
    return len(kv.claim(sequence_of(kv, request)).prefix)


def test_a_prefix_hit_leaves_one_token_to_compute() -> None:
    kv = manager()
    computed(kv, make_request("a", range(1, 9)))
    assert hit(kv, make_request("b", range(1, 9))) == 1
    assert hit(kv, make_request("c", range(1, 10))) == 2
    assert hit(kv, make_request("d", [1, 2, 3, 4, 9, 9, 9, 9, 9])) == 1
    assert hit(kv, make_request("e", range(1, 9), salt="other")) == 0


def test_a_hit_may_end_inside_an_item_but_not_an_atomic_one() -> None:
    kv = manager()
    computed(kv, make_request("a", [1, 2, Picture(1, 8), 3, 4]))
    assert hit(kv, make_request("b", [1, 2, Picture(1, 8), 9, 9])) == 2
    computed(kv, make_request("c", [1, 2, Picture(2, 8, atomic=True), 3, 4]))
    assert hit(kv, make_request("d", [1, 2, Picture(2, 8, atomic=True), 9, 9])) == 0


def test_another_picture_ends_the_hit() -> None:
    kv = manager()
    computed(kv, make_request("a", [1, 2, 3, 4, 5, Picture(1, 4), 6, 7]))
    assert hit(kv, make_request("b", [1, 2, 3, 4, 5, Picture(2, 4), 6, 7, 8])) == 1


def test_without_reuse_nothing_is_found() -> None:
    kv = manager(reuse=False)
    computed(kv, make_request("a", range(1, 9)))
    computed(kv, make_cross_request("x", [1], [Picture(1, 3)]))
    assert hit(kv, make_request("b", range(1, 10))) == 0
    assert kv.find_cross(make_cross_request("y", [1], [Picture(1, 3)]).cross) == []


def test_a_claim_counts_cached_hits_as_taken() -> None:
    kv = manager()
    first = computed(kv, make_request("a", range(1, 10)))
    shared = kv.claim(sequence_of(kv, make_request("b", range(1, 10))))
    assert (len(shared.prefix), shared.num_new, shared.num_taken) == (2, 1, 1)
    kv.release(first)
    idle = kv.claim(sequence_of(kv, make_request("b", range(1, 10))))
    assert (len(idle.prefix), idle.num_new, idle.num_taken) == (2, 1, 3)


def test_cross_blocks_are_shared_the_partly_filled_last_one_too() -> None:
    kv = manager()
    first = computed(kv, make_cross_request("a", [1, 2], [Picture(1, 5)]))
    assert len(first.cross_blocks) == 2
    second = sequence_of(kv, make_cross_request("b", [1, 3], [Picture(1, 5)]))
    kv.start(second, kv.claim(second))
    assert second.cross_blocks == first.cross_blocks
    assert second.is_cross_written


def test_cross_states_are_in_flight_until_their_step_came_back() -> None:
    kv = manager()
    first = sequence_of(kv, make_cross_request("a", [1, 2], [Picture(1, 5)]))
    kv.start(first, kv.claim(first))
    second = sequence_of(kv, make_cross_request("b", [1, 3], [Picture(1, 5)]))
    assert kv.is_cross_in_flight(second.request)
    assert not kv.is_cross_in_flight(first.request)
    kv.cross_came_back(first, first.cross_blocks)
    assert not kv.is_cross_in_flight(second.request)
    assert kv.claim(second).cross == first.cross_blocks


def test_a_lost_cross_block_is_a_miss_of_all() -> None:
    kv = manager(num_blocks=4)
    first = computed(kv, make_cross_request("a", [1, 2], [Picture(1, 5)]))
    kv.release(first)
    kv.pool.allocate(3)
    assert kv.find_cross(first.request.prepared.cross) == []


def test_whoever_writes_a_forked_tail_first_copies_it() -> None:
    kv = manager()
    parent = computed(kv, make_request("a", [1, 2, 3, 4, 5, 6], n=2))
    child = next_sequence(parent.request)
    kv.fork(parent, child)
    tail = parent.blocks[1]
    assert child.blocks == parent.blocks
    assert child.num_computed_tokens == 5
    assert kv.num_missing(parent, 7) == 1
    assert kv.make_writable(parent, 7) == [(1, BlockCopy(tail, parent.blocks[1]))]
    assert parent.blocks[1] != tail == child.blocks[1]
    assert kv.num_missing(child, 6) == 0
    assert kv.make_writable(child, 6) == []


def test_a_full_cached_tail_is_copied_even_by_its_only_holder() -> None:
    kv = manager()
    parent = computed(kv, make_request("a", [1, 2, 3, 4], n=2))
    child = next_sequence(parent.request)
    kv.fork(parent, child)
    kv.release(parent)
    (cached,) = child.blocks
    assert kv.make_writable(child, 4) == [(0, BlockCopy(cached, child.blocks[0]))]


def test_a_fork_goes_back_to_the_start_of_an_atomic_item() -> None:
    kv = manager()
    parent = computed(kv, make_request("a", [1, Picture(1, 6, atomic=True)], n=2))
    child = next_sequence(parent.request)
    kv.fork(parent, child)
    assert child.num_computed_tokens == 1
    assert kv.num_missing(child, 7) == 2


def test_generated_tokens_are_found_by_the_next_turn() -> None:
    kv = manager()
    sequence = computed(kv, make_request("a", [1, 2, 3, 4, 5, 6]))
    sequence.token_ids += [51, 52]
    kv.register(sequence, 8)
    kv.release(sequence)
    assert hit(kv, make_request("b", [1, 2, 3, 4, 5, 6, 50, 51, 9])) == 2
