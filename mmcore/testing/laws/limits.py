"""Limits: from a header alone it is known whether an item can be served, and what is asked is understood."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from mmcore.adapter import MediaLimits
from mmcore.errors import InputError, MediaLimitError
from mmcore.inputs.items import check_limits
from mmcore.request import ItemPlan, MediaInfo
from mmcore.testing.law import law
from mmcore.testing.samples import Ask, Medium, media
from mmcore.testing.subject import Subject

MOST_ROWS = 1 << 22
"""Beyond it no engine could hold an item."""


def headers(subject: Subject) -> st.SearchStrategy[MediaInfo]:
    """Anything that a file may claim to be, thin, huge, endless or empty of frames."""
    side = st.one_of(st.integers(1, 40), st.integers(1, 30_000))
    kinds: dict[str, st.SearchStrategy[MediaInfo]] = {
        "image": st.builds(lambda w, h: MediaInfo("image", width=w, height=h), side, side),
        "video": st.builds(
            lambda w, h, n, s: MediaInfo("video", width=w, height=h, frames=n, seconds=s),
            side,
            side,
            st.integers(1, 20_000),
            st.floats(0.0, 1e5).map(lambda value: round(value, 2)),
        ),
        "audio": st.builds(_sound, st.integers(0, 10**8), st.sampled_from([4000, 16_000, 192_000])),
    }
    return st.one_of([kinds[modality] for modality in subject.adapter.inputs.modalities])


def _sound(samples: int, rate: int) -> MediaInfo:
    return MediaInfo("audio", seconds=samples / rate, sample_rate=rate, samples=samples)


@law(cost=0.1, info=headers)
def any_header_is_measured_or_refused(subject: Subject, info: MediaInfo) -> None:
    """Of any header `measure` gives a plan with rows, or it is refused by a `MediaLimitError`."""
    processor = subject.adapter.inputs
    try:
        check_limits(info, processor.limits.get(info.modality, MediaLimits()))
        (plan,) = processor.measure([info], [processor])
    except MediaLimitError:
        return
    assert isinstance(plan, ItemPlan), f"measure gives a {type(plan).__name__}"
    assert 1 <= plan.rows <= MOST_ROWS, f"{info} is planned as {plan.rows} rows"
    work = subject.adapter.encoder.cost(plan).work
    assert work > 0, f"an item of {plan.rows} rows costs {work}"


@law(cost=4, item=media)
def too_many_items_are_refused(subject: Subject, item: Medium) -> None:
    """Each modality that the family takes has a place in a prompt; one item above `max_items` is refused."""
    for modality in subject.adapter.inputs.modalities:
        placed = subject.adapter.placeholder(modality) is not None
        assert placed or not subject.is_interleaved, f"{modality} has no placeholder"
        limit = subject.adapter.inputs.limits.get(modality, MediaLimits()).max_items
        if limit:
            _check_refused(subject, Ask((item,) * (limit + 1)))


def _check_refused(subject: Subject, ask: Ask) -> None:
    try:
        subject.prepared(ask)
    except InputError:
        return
    raise AssertionError(f"{len(ask.media)} media are taken, over max_items")


STRANGE_OPTIONS: tuple[Any, ...] = (None, "strange", -1, [], {}, 10**30, float("nan"))


def strange_options(subject: Subject) -> st.SearchStrategy[dict[str, Any]]:
    """A name that no family has, or a family's own with a value that it cannot mean."""
    known = [name for each in subject.family.options.values() for options in each for name in options]
    names = st.sampled_from(["no_such_option", *sorted(set(known))])
    return st.dictionaries(names, st.sampled_from(STRANGE_OPTIONS), min_size=1, max_size=1)


@law(options=strange_options)
def strange_options_are_refused(subject: Subject, options: dict[str, Any]) -> None:
    """`with_options` refuses an unknown name and a value without sense by an `InputError`."""
    try:
        subject.adapter.inputs.with_options(options)
    except InputError:
        return
    assert "no_such_option" not in options, "an unknown option is taken, and does nothing"
