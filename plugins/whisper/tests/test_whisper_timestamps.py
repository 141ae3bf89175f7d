"""Laws of the timestamp rules and of what a decoded window says: those of transformers, for any ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mmcore_whisper.timestamps import TimestampRule
from mmcore_whisper.tokens import WhisperTokens
from mmcore_whisper.windows import decoded_window
from transformers import WhisperForConditionalGeneration
from transformers.generation.logits_process import WhisperTimeStampLogitsProcessor

from mmcore.adapter import LogitsEdit
from mmcore.model.logits_edit import RowEdit, edit_logits

STEPS = 12
TOKENS = WhisperTokens(end=5, start=6, no_timestamps=9, stop=10 + STEPS)
FIRST = TOKENS.first_timestamp
TEXT = st.integers(0, TOKENS.end - 1)
LOGITS = st.lists(st.floats(-9, 9, width=32), min_size=TOKENS.stop, max_size=TOKENS.stop)


def ruled(rule: Any, generated: Sequence[int], logits: Sequence[float]) -> torch.Tensor:
    row = torch.tensor([logits])
    edit_logits(row, [RowEdit(0, rule.edit(generated))])
    return row


def reference_ruled(initial: int | None, generated: Sequence[int], logits: Sequence[float]) -> torch.Tensor:
    config: Any = SimpleNamespace(
        no_timestamps_token_id=TOKENS.no_timestamps,
        eos_token_id=TOKENS.end,
        bos_token_id=TOKENS.end,
        max_initial_timestamp_index=initial,
    )
    processor = WhisperTimeStampLogitsProcessor(config, begin_index=1)
    ids = torch.tensor([[TOKENS.start, *generated]])
    edited: torch.Tensor = processor(ids, torch.tensor([logits]))
    return edited


@settings(deadline=None)
@given(
    st.lists(st.one_of(TEXT, st.integers(FIRST, TOKENS.stop - 1)), max_size=9),
    LOGITS,
    st.none() | st.integers(0, STEPS),
)
def test_the_rule_is_the_references(generated: list[int], logits: list[float], initial: int | None) -> None:
    """Where the sums are within rounding of a tie, either may win."""
    ours = ruled(TimestampRule(TOKENS, initial), generated, logits)
    theirs = reference_ruled(initial, generated, logits)
    if not torch.equal(ours, theirs):
        spoken, timed = theirs[:, :FIRST], theirs[:, FIRST:]
        either = spoken if spoken.isfinite().any() else ours[:, :FIRST]
        assert abs(float(either.max() - timed.logsumexp(1))) < 1e-4


# ------------------------------------------------------------------ what the rules bring about


@dataclass(frozen=True)
class WithoutOrder:
    """Broken: time may go back."""

    tokens: WhisperTokens

    def edit(self, generated: Sequence[int]) -> LogitsEdit:
        edit = TimestampRule(self.tokens).edit(generated)
        spans = tuple(span for span in edit.banned_spans if not generated or span[0] != FIRST)
        return LogitsEdit(banned_spans=spans, prefer=edit.prefer)


def spoken(rule: Any, seed: int, tokens: int = 16) -> list[int]:
    """Greedy ids under the rule, from random logits, without the end token."""
    generator = torch.Generator().manual_seed(seed)
    ids: list[int] = []
    for _ in range(tokens):
        logits = torch.randn(TOKENS.stop, generator=generator) * 3
        logits[TOKENS.end + 1 : FIRST] = -torch.inf  # other specials are suppressed by the checkpoint
        ids.append(int(ruled(rule, ids, logits.tolist()).argmax()))
        if ids[-1] == TOKENS.end:
            return ids[:-1]
    return ids


def check_order(ids: Sequence[int]) -> None:
    """A timestamp first, never back; text stands between a start and a later end."""
    times = [i - FIRST for i in ids if i >= FIRST]
    assert ids[0] >= FIRST
    assert times == sorted(times)
    pairs = [i for i in range(1, len(ids)) if min(ids[i - 1 : i + 1]) >= FIRST]
    assert all(j - i > 1 for i, j in zip([0, *pairs], pairs, strict=False)), "a segment has text"
    starts = [ids[i] for i in (0, *pairs)]
    ends = [ids[i - 1] for i in pairs]
    assert all(start < end for start, end in zip(starts, ends, strict=False))


def is_out_of_order(ids: Sequence[int]) -> bool:
    try:
        check_order(ids)
    except AssertionError:
        return True
    return False


@settings(deadline=None)
@given(st.integers(0, 10**6))
def test_ids_are_segments_in_order(seed: int) -> None:
    check_order(spoken(TimestampRule(TOKENS), seed))


def test_a_rule_without_order_is_caught() -> None:
    caught = [seed for seed in range(200) if is_out_of_order(spoken(WithoutOrder(TOKENS), seed))]
    assert len(caught) > 20


# ------------------------------------------------------------------ windows


def reference_window(ids: Sequence[int], frames: int) -> tuple[list[tuple[float, float, list[int]]], int]:
    retrieve: Any = WhisperForConditionalGeneration._retrieve_segment
    segments, advance = retrieve(
        seek_sequence=torch.tensor(ids),
        seek_outputs=[{}],
        time_offset=torch.zeros(1, dtype=torch.float64),
        timestamp_begin=FIRST,
        seek_num_frames=torch.tensor([frames]),
        time_precision=0.02,
        time_precision_features=0.01,
        input_stride=2,
        prev_idx=0,
        idx=0,
        return_token_timestamps=False,
        decoder_input_ids=torch.tensor([[TOKENS.start]]),
    )
    return [(float(s["start"]), float(s["end"]), s["tokens"].tolist()) for s in segments], int(advance)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 2 * STEPS))
def test_a_window_says_what_the_reference_reads(seed: int, frames: int) -> None:
    ids = spoken(TimestampRule(TOKENS), seed)
    ours = decoded_window(ids, frames, FIRST)
    segments, advance = reference_window(ids, frames)
    assert ours.advance == advance > 0
    assert [segment.start * 0.02 for segment in ours.segments] == pytest.approx([s for s, _, _ in segments])
    assert [segment.end * 0.02 for segment in ours.segments] == pytest.approx([e for _, e, _ in segments])
    # its last segment keeps the timestamp that the next one begins with
    theirs = [tokens for _, _, tokens in segments]
    if len(theirs[-1]) > 1 and min(theirs[-1][-2:]) >= FIRST:
        theirs[-1].pop()
    assert [list(segment.ids) for segment in ours.segments] == theirs


@pytest.mark.parametrize("ids", [[], [FIRST], [FIRST, 1, 2]])
def test_a_window_without_an_end_lasts_as_long_as_its_sound(ids: list[int]) -> None:
    window = decoded_window(ids, 17, FIRST)
    assert (window.segments[0].start, window.segments[0].end, window.advance) == (0, 8, 17)
