"""One paper adapter a family: what each declares fits the contract, without inputs, scheduler or engine."""

from __future__ import annotations

import pytest
from paper.families import FAMILIES
from paper.whisper_chain import WINDOW

from mmcore.adapter import Encoder, Fusion, Generation, InputProcessor, Layout
from mmcore.request import (
    ArraySource,
    DecodedMedia,
    EncodeCost,
    ItemPlan,
    MediaInfo,
    PlaceholderRange,
    PreparedItem,
    PreparedRequest,
    Result,
    Rows,
    Tokens,
)
from mmcore.sampling_params import SamplingParams

INFOS = {
    "image": MediaInfo("image", width=120, height=56),
    "video": MediaInfo("video", width=56, height=28, frames=12, seconds=3.0),
    "audio": MediaInfo("audio", sample_rate=48_000, samples=3 * 80_000),
}


def plans(family: str, *infos: MediaInfo) -> tuple[ItemPlan, ...]:
    inputs = FAMILIES[family].adapter().inputs
    return inputs.measure(infos, [inputs] * len(infos))


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_of_the_pieces_are_the_rows_of_the_plan(family: str) -> None:
    adapter = FAMILIES[family].adapter()
    assert isinstance(adapter.inputs, InputProcessor)
    assert isinstance(adapter.encoder, Encoder)
    for plan in plans(family, *(INFOS[modality] for modality in FAMILIES[family].modalities)):
        in_prompt = sum(piece.count for piece in plan.pieces if isinstance(piece, Rows))
        assert in_prompt == (plan.rows if adapter.fusion is Fusion.INTERLEAVED else 0)
        assert adapter.encoder.cost(plan) == EncodeCost(work=plan.rows)


def test_one_picture_alone_is_tiled_and_every_tile_ends_with_an_ordinary_token() -> None:
    (alone,) = plans("nvila", INFOS["image"])
    both = plans("nvila", INFOS["image"], INFOS["image"])
    assert alone.pieces == (Rows(4), Tokens((ord("\n"),))) * 3  # two tiles and the thumbnail
    assert [plan.rows for plan in both] == [4, 4]


def test_a_newline_row_follows_each_line_of_patches() -> None:
    (plan,) = plans("llava", INFOS["image"])
    assert plan.geometry == (1, 2, 4, 8)
    assert plan.rows == 4 * 4 + 4 * (8 + 1)


def test_after_a_video_positions_go_on_after_the_largest_of_all_axes() -> None:
    (plan,) = plans("qwen2vl", INFOS["video"])
    assert (plan.geometry, plan.times, plan.source.frames) == (
        (3, 1, 2),
        (0.0, 0.5, 1.0, 1.5, 2.0, 2.5),
        (0, 2, 4, 6, 8, 10),
    )
    adapter = FAMILIES["qwen2vl"].adapter()
    assert adapter.positions is not None
    found = adapter.positions(Layout(9, (PlaceholderRange(2, 6, 0, 0),), (plan,), ("video",)))
    assert found.values.tolist() == [
        [0, 1, 2, 2, 3, 3, 4, 4, 5],
        [0, 1, 2, 2, 2, 2, 2, 2, 5],
        [0, 1, 2, 3, 2, 3, 2, 3, 5],
    ]
    assert found.delta == 6 - 9


def test_t5_reads_rows_and_text_and_starts_its_decoder_apart() -> None:
    adapter = FAMILIES["blip2-t5"].adapter()
    assert adapter.context is not None
    assert adapter.context.length(plans("blip2-t5", INFOS["image"]), (1, 2, 3)) == 8 + 3
    assert adapter.decoding.prefix({}) == (258,)


def test_levels_widen_the_rows_of_an_uncut_item() -> None:
    (plan,) = plans("levels", INFOS["image"])
    assert (plan.width, plan.rows, plan.atomic) == (24, 4 * 8, True)


def _heard(start: int, total: int, tokens: tuple[int, ...], **sampling: float) -> PreparedRequest:
    adapter = FAMILIES["whisper"].adapter()
    own = adapter.inputs.with_options({"start": start})
    (plan,) = own.measure([MediaInfo("audio", sample_rate=16_000, samples=total)], [own])
    source = ArraySource(DecodedMedia("audio", None, 16_000))  # type: ignore[arg-type]
    item = PreparedItem("audio", source, b"", plan, EncodeCost(1), b"", b"")
    return PreparedRequest(
        request_id="r", token_ids=tokens, sampling=SamplingParams(**sampling), root_key=b"", items=(item,),
        decoder_options=(("task", 0),),
    )  # fmt: skip


def test_whisper_asks_for_the_language_then_for_window_after_window() -> None:
    decoding = FAMILIES["whisper"].adapter().decoding
    first = _heard(0, 2 * WINDOW, decoding.prefix({}))
    language = decoding.finish(Generation(request=first, ids=(100,), text="d"))
    link = decoding.follow_up(first, language)
    assert link is not None
    assert link.token_ids == (257, 100, 258)
    second = _heard(0, 2 * WINDOW, link.token_ids)
    heard = decoding.finish(Generation(request=second, ids=(1, 2), text="good ", logprobs=(-0.1, -0.2)))
    link = decoding.follow_up(second, heard)
    assert link is not None
    assert link.options == {"start": WINDOW}
    third = _heard(WINDOW, 2 * WINDOW, second.token_ids)
    heard = decoding.finish(Generation(request=third, ids=(3,), text="day", logprobs=(-0.1,), previous=heard))
    assert decoding.follow_up(third, heard) is None
    assert heard == Result("good day")


def test_whisper_tries_a_poor_window_again_and_forgets_the_first_try() -> None:
    decoding = FAMILIES["whisper"].adapter().decoding
    request = _heard(0, WINDOW, (257, 100, 258))
    poor = decoding.finish(Generation(request=request, ids=(1,), text="noise", logprobs=(-2.0,)))
    link = decoding.follow_up(request, poor)
    assert link is not None
    assert (link.options, link.token_ids) == (None, None)  # so every key stays
    assert link.sampling is not None
    assert link.sampling.temperature == 0.4
    again = _heard(0, WINDOW, (257, 100, 258), temperature=0.4)
    better = decoding.finish(Generation(request=again, ids=(1,), text="day", logprobs=(-2.0,), previous=poor))
    assert (better.text, decoding.follow_up(again, better)) == ("day", None)


def test_nougat_ends_where_logits_stand_still_and_cuts_the_tail() -> None:
    decoding = FAMILIES["nougat"].adapter().decoding
    request = PreparedRequest(request_id="r", token_ids=(257,), sampling=SamplingParams(), root_key=b"")
    rule = decoding.stop_rule(request)
    assert rule is not None
    assert [rule.observe(1, logit, 0.0) for logit in (0.1, 0.9, 0.8, 0.85)] == [False, False, False, True]
    ids = tuple(b"page")
    cut = decoding.finish(Generation(request=request, ids=ids, text="page", logits=(0.1, 0.9, 0.8, 0.85)))
    assert cut == Result("p", (("repeats", True),))
