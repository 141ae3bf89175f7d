"""Where rows lie among tokens, from text and from token ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs.toy_family import ToyCheckpoint, toy_adapter

from mmcore.errors import PlaceholderMismatchError
from mmcore.inputs.layout import lay_out, lay_out_tokens
from mmcore.request import ItemPlan, MediaSegment, PlaceholderRange, Rows, Segment, TextSegment, Tokens

CHECKPOINT = ToyCheckpoint()
ADAPTER = toy_adapter(CHECKPOINT)
IMAGE = CHECKPOINT.tokenizer.token_id("<|image_pad|>") or 0
AUDIO = CHECKPOINT.tokenizer.token_id("<|audio_pad|>") or 0
TILES = ItemPlan((Tokens((7,)), Rows(2), Tokens((8, 8)), Rows(3)), 5, 8)
PLAIN = ItemPlan((Rows(4),), 4, 8)
PLANS = st.lists(
    st.lists(
        st.one_of(
            st.integers(1, 4).map(Rows),
            st.lists(st.integers(0, 9), min_size=1, max_size=2).map(tuple).map(Tokens),
        ),
        min_size=1,
        max_size=4,
    )
    .filter(lambda pieces: any(isinstance(p, Rows) for p in pieces))
    .map(lambda pieces: ItemPlan(tuple(pieces), sum(p.count for p in pieces if isinstance(p, Rows)), 8)),
    max_size=3,
)


def test_an_item_may_fill_several_ranges() -> None:
    segments: list[Segment] = [TextSegment("a"), MediaSegment("image", 0), MediaSegment("image", 1)]
    layout = lay_out(segments, [TILES, PLAIN], ADAPTER, CHECKPOINT.tokenizer)
    (a,) = CHECKPOINT.tokenizer.encode("a", special_tokens=False)
    assert layout.token_ids == (a, 7, *[IMAGE] * 2, 8, 8, *[IMAGE] * 7)
    assert layout.ranges == (
        PlaceholderRange(2, 2, 0, 0),
        PlaceholderRange(6, 3, 0, 2),
        PlaceholderRange(9, 4, 1, 0),
    )


@given(plans=PLANS, texts=st.lists(st.text("ab \n<|>", max_size=5), min_size=4, max_size=4))
def test_ranges_cover_every_row_once_in_order(plans: list[ItemPlan], texts: list[str]) -> None:
    segments: list[Segment] = [TextSegment(texts[0])]
    for number, _ in enumerate(plans):
        segments += [MediaSegment("image", number), TextSegment(texts[number + 1])]
    layout = lay_out(segments, plans, ADAPTER, CHECKPOINT.tokenizer)
    ends = [0, *(r.offset + r.length for r in layout.ranges)]
    assert all(r.offset >= end for r, end in zip(layout.ranges, ends, strict=False))
    for item, plan in enumerate(plans):
        rows = [row for r in layout.ranges if r.item == item for row in range(r.row, r.row + r.length)]
        assert rows == list(range(plan.rows))
    covered = {i for r in layout.ranges for i in range(r.offset, r.offset + r.length)}
    assert covered == {i for i, token in enumerate(layout.token_ids) if token == IMAGE}


@given(plans=PLANS, gap=st.lists(st.integers(10, 20), max_size=3))
def test_token_prompts_folded_and_written_out_lie_the_same(plans: list[ItemPlan], gap: list[int]) -> None:
    """Law: one placeholder an item, and the expansion of it, are the same prompt."""
    modalities = ["image"] * len(plans)
    folded = [*gap, *(token for _ in plans for token in (IMAGE, *gap))]
    layout = lay_out_tokens(folded, modalities, plans, ADAPTER)
    assert lay_out_tokens(layout.token_ids, modalities, plans, ADAPTER) == layout
    text = lay_out(
        [s for k in range(len(plans)) for s in [MediaSegment("image", k)]],
        plans,
        ADAPTER,
        CHECKPOINT.tokenizer,
    )
    assert [t for t in layout.token_ids if t not in gap] == [t for t in text.token_ids if t not in gap]


@pytest.mark.parametrize(
    "ids",
    [
        [1, 2],
        [IMAGE, 1],
        [IMAGE, IMAGE, IMAGE],
        [*[IMAGE] * 4, 1, *[IMAGE] * 3],
        [*[IMAGE] * 4, 1, *[IMAGE] * 5],
        [*[IMAGE] * 8, IMAGE],
    ],
)
def test_token_prompts_that_match_neither_way(ids: list[int]) -> None:
    with pytest.raises(PlaceholderMismatchError, match=r"placeholder ids for 2 media.*rows \(4, 4\)"):
        lay_out_tokens(ids, ["image"] * 2, [PLAIN, PLAIN], ADAPTER)


def test_token_prompts_of_two_modalities() -> None:
    layout = lay_out_tokens([AUDIO, 1, IMAGE], ["audio", "image"], [PLAIN, TILES], ADAPTER)
    assert layout.token_ids == (*[AUDIO] * 4, 1, 7, *[IMAGE] * 2, 8, 8, *[IMAGE] * 3)
    assert [r.item for r in layout.ranges] == [0, 1, 1]


def test_ids_of_other_modalities_are_ordinary_tokens() -> None:
    assert lay_out_tokens([AUDIO, IMAGE], ["image"], [PLAIN], ADAPTER).token_ids == (AUDIO, *[IMAGE] * 4)
    assert lay_out_tokens([1, 2], [], [], ADAPTER).token_ids == (1, 2)
