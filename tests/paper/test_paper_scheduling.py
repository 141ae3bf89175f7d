"""Paper adapters through the real scheduler and caches: what each family's way asks of them."""

from __future__ import annotations

import numpy as np
import pytest
from paper.asks import Ask
from paper.families import FAMILIES
from paper.toy_house import Room, ToyHouse
from paper.whisper_chain import WINDOW

from mmcore.config import MediaPolicy
from mmcore.core.output import SchedulerOutput
from mmcore.errors import RequestTooLargeError
from mmcore.inputs.assemble import RequestAssembler, RequestFacts
from mmcore.inputs.items import ItemMaker, OpenedItem
from mmcore.inputs.layout import lay_out
from mmcore.inputs.media import OpenedMedia
from mmcore.inputs.ops import NumpyOps
from mmcore.request import (
    ArraySource,
    DecodedMedia,
    EncoderInput,
    MediaInfo,
    MediaSegment,
    PreparedItem,
    PreparedRequest,
    TextSegment,
)
from mmcore.sampling_params import SamplingParams


def house(family: str, room: Room, *questions: Ask) -> ToyHouse:
    found = ToyHouse(FAMILIES[family], room)
    for number, ask in enumerate(questions):
        found.ask(str(number), ask)
    found.run()
    return found


def rows(outputs: list[SchedulerOutput]) -> list[tuple[int, int]]:
    return [
        (start, start + count)
        for out in outputs
        for start, count in zip(out.row_starts, out.row_counts, strict=True)
    ]


def encoded(outputs: list[SchedulerOutput]) -> int:
    return sum(len(out.encode_items) for out in outputs)


def written(outputs: list[SchedulerOutput]) -> int:
    return sum(sum(out.cross_writes) for out in outputs)


@pytest.mark.parametrize("family", FAMILIES)
def test_any_budget_gives_the_same_tokens(family: str) -> None:
    ask = Ask((2, "what is it", 0, "?"))
    whole = house(family, Room(), ask).answers
    least = 24 if family == "levels" else 1
    for tokens in range(least, least + 20):
        assert house(family, Room(tokens=tokens), ask).answers == whole


def test_an_uncut_item_is_computed_in_one_step() -> None:
    found = house("levels", Room(tokens=26), Ask(("what is in it?", 2, "x", 3, 0)))
    (request,) = found.requests
    assert len(request.ranges) == 3
    for r in request.ranges:
        assert any(start <= r.offset and r.offset + r.length <= stop for start, stop in rows(found.outputs))
    assert len(found.outputs) > 3


def test_a_cached_prefix_does_not_cut_an_uncut_item() -> None:
    first, second = Ask((2, "what is it")), Ask((2, "x"))
    found = house("levels", Room(block_size=5), first)
    found.ask("again", second)
    (r,) = found.requests[1].ranges
    before = len(found.outputs)
    found.run()
    assert all(start >= r.offset + r.length or start == 0 for start, _ in rows(found.outputs[before:]))


def test_an_uncut_item_longer_than_a_step_is_refused_by_the_name_of_the_setting() -> None:
    with pytest.raises(RequestTooLargeError, match="max_num_tokens"):
        house("levels", Room(tokens=23), Ask((2,)))


def test_a_tile_is_cut_by_any_chunk_and_encoded_once() -> None:
    found = house("nvila", Room(tokens=3), Ask((2,)))
    (request,) = found.requests
    starts = {start for start, _ in rows(found.outputs)}
    assert any(r.offset < start < r.offset + r.length for r in request.ranges for start in starts)
    assert encoded(found.outputs) == 1


@pytest.mark.parametrize("family", ["whisper", "nougat"])
def test_cross_states_of_one_item_are_written_once_for_all(family: str) -> None:
    asks = [Ask((0,), language=65), Ask((0,), language=66, n=2), Ask((0,), temperature=0.7, language=65)]
    found = house(family, Room(), *asks)
    assert (encoded(found.outputs), written(found.outputs)) == (1, 1)


def test_t5_shares_the_picture_and_cross_states_only_with_the_same_text() -> None:
    found = house("blip2-t5", Room(), Ask((0, "what")), Ask((0, "how?")), Ask((0, "what"), temperature=0.7))
    assert (encoded(found.outputs), written(found.outputs)) == (1, 2)


def test_t5_answers_text_without_a_picture() -> None:
    found = house("blip2-t5", Room(), Ask(("what",)))
    assert (encoded(found.outputs), written(found.outputs)) == (0, 1)


def test_two_items_of_one_cross_request_are_held_together() -> None:
    found = house("blip2-t5", Room(), Ask((0, 1, "what")))
    (request,) = found.requests
    assert request.cross is not None
    assert request.cross.length == 8 + 8 + 5
    assert (encoded(found.outputs), written(found.outputs)) == (2, 1)


def test_long_sound_is_a_chain_of_windows_and_each_is_encoded_once() -> None:
    found = house("whisper", Room(), Ask((1,)))
    windows = [request.items[0].plan.source.start for request in found.requests]
    assert sorted(set(windows)) == [0, WINDOW, 2 * WINDOW]
    assert windows == sorted(windows)
    assert len(found.requests[0].token_ids) == 1  # the language, over the first window's states
    assert len(windows) > 4  # so a window was tried again
    assert (encoded(found.outputs), written(found.outputs)) == (3, 3)
    answer, ends = found.answers["0"], [*windows[1:], None]
    last_tries = [
        link[0] for link, this, after in zip(answer.links, windows, ends, strict=True) if this != after
    ]
    assert answer.result is not None
    assert answer.result.text == "".join(map(found.pipeline.tokenizer.decode, last_tries))


def test_nougat_ends_before_its_length_when_logits_stand_still() -> None:
    found = house("nougat", Room(overlap=True), Ask((0,), max_tokens=400))
    answer = found.answers["0"]
    assert answer.result is not None
    assert dict(answer.result.fields)["repeats"]
    assert len(answer.result.text) == len(answer.links[0][0]) - 3 < 397


# ------------------------------------------------------------------ video


class VideoHouse(ToyHouse):
    """Video by way of layout, keys and assembly, its frames made on the spot."""

    def preprocess(self, item: PreparedItem) -> EncoderInput:
        assert isinstance(item.source, ArraySource)
        frames = item.source.media.data[list(item.plan.source.frames)]
        return self.adapter.inputs.preprocess(DecodedMedia("video", frames), item.plan, NumpyOps())

    def video(self, name: str, seed: int) -> PreparedRequest:
        frames = np.random.default_rng(seed).integers(0, 256, (12, 28, 56, 3), dtype=np.uint8)
        info = MediaInfo("video", width=56, height=28, frames=12, seconds=3.0)
        media = OpenedMedia(ArraySource(DecodedMedia("video", frames)), info, frames.tobytes())
        items = ItemMaker(self.adapter, b"one", MediaPolicy(), "float32", "numpy").make(
            [OpenedItem("video", "video", media)], ""
        )
        segments = (TextSegment("see "), MediaSegment("video", 0), TextSegment("what?"))
        layout = lay_out(segments, [item.plan for item in items], self.adapter, self.pipeline.tokenizer)
        facts = RequestFacts(request_id=name, sampling=SamplingParams(max_tokens=9))
        return RequestAssembler(self.adapter, b"one", "float32", 512).assemble(facts, layout, items)


def test_video_frames_become_rows_with_positions_and_go_on_after_the_last() -> None:
    found = VideoHouse(FAMILIES["qwen2vl"], Room())
    request = found.video("r", seed=0)
    assert request.positions is not None
    (r,) = request.ranges
    assert (r.offset, r.length) == (4, 3 * 1 * 2)
    assert request.positions.values[:, r.offset + r.length].tolist() == [4 + 3] * 3  # three steps of time
    assert request.items[0].plan.times == (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)


@pytest.mark.parametrize("family", ["qwen2vl", "nvila"])
def test_video_is_cut_and_shared_like_any_item(family: str) -> None:
    answers = []
    for tokens in (512, 5, 1):
        found = VideoHouse(FAMILIES[family], Room(tokens=tokens))
        for name, seed in (("a", 0), ("b", 0), ("c", 1)):
            found.add(found.video(name, seed))
        answers.append(found.run())
        assert encoded(found.outputs) == 2
    assert answers[0] == answers[1] == answers[2]
    assert answers[0]["a"] == answers[0]["b"] != answers[0]["c"]
