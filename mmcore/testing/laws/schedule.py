"""Schedules: an answer is the prompt's alone, not its neighbours', its cuts' or the caches'."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from mmcore.request import RequestOutput
from mmcore.testing.answers import BLOCK, Room
from mmcore.testing.law import law
from mmcore.testing.samples import Ask, asks
from mmcore.testing.subject import ANSWER, Subject

_NEEDS = (
    "measure_counts_rows",
    "rows_are_the_item_s_own",
    "media_keep_their_order",
    "ranges_use_each_row_once",
    "positions_sliced_are_positions_whole",
)
ABSOLUTE = 2e-4
"""On log-probabilities, in float32."""


def check_same(found: RequestOutput, wanted: RequestOutput, how: str) -> None:
    """Equal tokens, text, and log-probabilities of each token and of its likeliest rivals."""
    one, other = found.outputs[0], wanted.outputs[0]
    assert one.token_ids == other.token_ids, f"{how}: {one.token_ids}, alone and whole {other.token_ids}"
    assert one.text == other.text, f"{how}: {one.text!r}, alone and whole {other.text!r}"
    for place, (some, others) in enumerate(zip(one.logprobs or (), other.logprobs or (), strict=True)):
        for token in some.keys() & others.keys():
            error = abs(some[token].logprob - others[token].logprob)
            assert error <= ABSOLUTE, f"{how}: token {place + 1} has another log-probability, by {error:.1e}"


def _longest_atom(subject: Subject, ask: Ask) -> int:
    """Tokens of the longest item that must not be cut."""
    request = subject.prepared(ask)
    spans = [span.length for span in request.ranges if request.items[span.item].plan.atomic]
    return max(spans, default=1)


def budgets(subject: Subject) -> st.SearchStrategy[int]:
    return st.sampled_from([5, 16, 48])


@law(needs=_NEEDS, cost=2, ask=asks, budget=budgets)
def chunks_change_nothing(subject: Subject, ask: Ask, budget: int) -> None:
    """A prompt that is computed piece by piece is answered as in one piece."""
    (whole,) = subject.answers([ask], Room(reuse=False))
    budget = max(budget, _longest_atom(subject, ask))
    (pieces,) = subject.answers([ask], Room(reuse=False, max_num_tokens=budget))
    check_same(pieces, whole, f"in chunks of {budget} tokens")


@law(needs=("chunks_change_nothing",), cost=2, ask=asks)
def a_cached_prefix_changes_nothing(subject: Subject, ask: Ask) -> None:
    """A prompt whose beginning, rows or cross states are cached is answered as the first time."""
    (cold,) = subject.answers([ask])
    salt = f"warm {cold.request_id}"
    first, second = (subject.answers([ask], salt=salt)[0] for _ in range(2))
    check_same(first, cold, "under another salt")
    check_same(second, cold, "with its prefix cached")
    chained = len(cold.outputs[0].token_ids) > (ANSWER.max_tokens or 0)
    if subject.is_interleaved and not chained and len(cold.prompt_token_ids) > BLOCK:
        assert second.cached_tokens > 0, "nothing of the same prompt is found in the cache"
    if ask.media:
        assert second.encoded_items == 0, "the same media are encoded again"


def several(subject: Subject) -> st.SearchStrategy[list[Ask]]:
    return st.lists(asks(subject), min_size=4, max_size=5)


@law(needs=("a_cached_prefix_changes_nothing",), cost=4, batch=several)
def a_batch_changes_nothing(subject: Subject, batch: list[Ask]) -> None:
    """Prompts that are computed together are answered as each alone."""
    alone = [subject.answers([ask])[0] for ask in batch]
    for found, wanted in zip(subject.answers(batch), alone, strict=True):
        check_same(found, wanted, f"in a batch of {len(batch)}")


def pairs(subject: Subject) -> st.SearchStrategy[list[Ask]]:
    return st.lists(asks(subject), min_size=2, max_size=2)


@law(needs=("a_batch_changes_nothing",), cost=2, batch=pairs)
def preemption_changes_nothing(subject: Subject, batch: list[Ask]) -> None:
    """Prompts that must give their blocks and rows away, and begin again, are answered as undisturbed."""
    undisturbed = subject.answers(batch, sampling=LONG)
    room = _narrow(subject, batch)
    for found, wanted in zip(subject.answers(batch, room, sampling=LONG), undisturbed, strict=True):
        check_same(found, wanted, f"with {room.kv_tokens} tokens of KV cache")


LONG = ANSWER.model_copy(update={"max_tokens": 2 * BLOCK})
"""An answer for which a prompt's own blocks are never enough."""


def _narrow(subject: Subject, batch: Sequence[Ask]) -> Room:
    """Blocks for both prompts, and for an answer to one of them; rows of one item at a time."""
    requests = [subject.prepared(ask) for ask in batch]
    cross = [-(-request.cross.length // BLOCK) if request.cross else 0 for request in requests]
    prompts = [-(-request.num_tokens // BLOCK) for request in requests]
    both = sum(prompts) + sum(cross)
    one = max(p + c for p, c in zip(prompts, cross, strict=True)) + 2
    rows = [item.cost.output_bytes for request in requests for item in request.items]
    return Room(
        kv_tokens=BLOCK * max(both, one),
        encoder_cache_bytes=max(rows, default=1),
        max_num_tokens=max(16, *(_longest_atom(subject, ask) for ask in batch)),
        reuse=False,
    )
