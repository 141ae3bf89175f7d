"""Which keys move when one field changes, and which stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs.toy_family import ToyContext, ToyEncoder, ToyInputs

from mmcore.errors import PluginError
from mmcore.inputs.framing import frames, hash_values
from mmcore.inputs.hashing import (
    block_key,
    content_digest,
    context_key,
    encoder_key,
    processor_key,
    root_key,
)
from mmcore.request import ArraySource, DecodedMedia, EncodedSource, ItemPlan, Rows, SourceSpec

PIXELS = np.arange(28 * 28 * 3, dtype=np.uint8).reshape(28, 28, 3)
PLAN = ItemPlan((Rows(4),), 4, 8, geometry=(2, 2), times=(0.5,), source=SourceSpec(sample_rate=16_000))


@dataclass(frozen=True)
class Facts:
    """Everything that the keys of one request are made of."""

    modality: str = "image"
    data: bytes = b"the bytes of a file"
    processor: Any = ToyInputs()  # noqa: RUF009
    options: tuple[tuple[str, Any], ...] = ()
    plan: ItemPlan = PLAN
    uuid: str = ""
    salt: str = ""
    encoder: Any = ToyEncoder()  # noqa: RUF009
    checkpoint: bytes = b"c" * 32
    dtype: str = "float32"
    quantization: str = ""
    backend: str = "numpy"
    kv_dtype: str = "float32"
    text_ids: tuple[int, ...] = (1, 2)
    stage: Any = ToyContext()  # noqa: RUF009
    token_ids: tuple[int, ...] = tuple(range(16))
    offset: int = 3


def keys(facts: Facts) -> dict[str, bytes]:
    content = content_digest(EncodedSource(facts.data))
    processor = processor_key(
        facts.modality,
        content,
        facts.processor,
        dict(facts.options),
        facts.plan,
        uuid=facts.uuid,
        salt=facts.salt,
    )
    encoder = encoder_key(
        processor,
        facts.encoder,
        facts.checkpoint,
        dtype=facts.dtype,
        quantization=facts.quantization,
        backend=facts.backend,
    )
    root = root_key(facts.checkpoint, facts.kv_dtype, salt=facts.salt)
    cross = context_key(root, [encoder], facts.text_ids, facts.stage)
    return {
        "processor": processor,
        "encoder": encoder,
        "root": root,
        "context": cross,
        "block": block_key(root, facts.token_ids, [(encoder, facts.offset)]),
        "cross block": block_key(
            root_key(facts.checkpoint, facts.kv_dtype, salt=facts.salt, cross=cross), (1,)
        ),
    }


ALL = {"processor", "encoder", "root", "context", "block", "cross block"}
ITEM = ALL - {"root"}
TOWER = ITEM - {"processor"}
CHANGES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "modality": ({"modality": "video"}, ITEM),
    "one byte of the file": ({"data": b"the bytes of a fild"}, ITEM),
    "a processor field": ({"processor": ToyInputs(cell=14)}, ITEM),
    "the processor's class": ({"processor": ToyEncoder()}, ITEM),
    "a request option": ({"options": (("cell", 14),)}, ITEM),
    "rows": ({"plan": replace(PLAN, rows=5, pieces=(Rows(5),))}, ITEM),
    "pieces": ({"plan": replace(PLAN, pieces=(Rows(2), Rows(2)))}, ITEM),
    "geometry": ({"plan": replace(PLAN, geometry=(1, 4))}, ITEM),
    "times": ({"plan": replace(PLAN, times=(0.25,))}, ITEM),
    "decode options": ({"plan": replace(PLAN, source=SourceSpec(sample_rate=8_000))}, ITEM),
    "row width": ({"plan": replace(PLAN, width=16)}, ITEM),
    "uuid": ({"uuid": "a"}, ITEM),
    "salt": ({"salt": "tenant"}, ALL),
    "an encoder field": ({"encoder": ToyEncoder(depth=3)}, TOWER),
    "tower dtype": ({"dtype": "bfloat16"}, TOWER),
    "quantisation": ({"quantization": "fp8"}, TOWER),
    "preprocessing backend": ({"backend": "torch"}, TOWER),
    "checkpoint": ({"checkpoint": b"d" * 32}, TOWER | {"root"}),
    "KV dtype": ({"kv_dtype": "fp8"}, {"root", "context", "block", "cross block"}),
    "the stage's text": ({"text_ids": (1, 3)}, {"context", "cross block"}),
    "the context stage": ({"stage": None}, {"context", "cross block"}),
    "a token": ({"token_ids": (*range(15), 99)}, {"block"}),
    "the place in the item": ({"offset": 4}, {"block"}),
    "a field that decides nothing": ({"processor": ToyInputs(note="x")}, set()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_which_keys_move(change: str) -> None:
    fields, moved = CHANGES[change]
    before, after = keys(Facts()), keys(replace(Facts(), **fields))
    assert {name for name in before if before[name] != after[name]} == moved


def test_keys_are_256_bits_and_stable() -> None:
    """A key may outlive its process: whoever changes what one covers raises the scheme's version."""
    assert {len(key) for key in keys(Facts()).values()} == {32}
    assert block_key(b"\0" * 32, (1, 2, 3), [(b"\1" * 32, 7)]).hex() == STABLE_BLOCK
    assert hash_values("kind", 1, "a", b"b", (2.5, None)).hex() == STABLE_VALUES


STABLE_BLOCK = "89a81147b6a8e6b5738f5c180bcbdc72d02ffb64ac33b8aafa832b86fc6a3e1f"
STABLE_VALUES = "e6deff625789f077d0426db31da92ac8a3e3235ea145136c7e79d9867a8c6bb0"


# ------------------------------------------------------------------ content


def array(pixels: np.ndarray) -> bytes:
    return content_digest(ArraySource(DecodedMedia("image", pixels)))


def test_pictures_of_one_colour_and_swapped_sides_differ() -> None:
    assert array(np.full((448, 224, 3), 9, np.uint8)) != array(np.full((224, 448, 3), 9, np.uint8))


def test_dtype_and_rate_of_sound_count() -> None:
    samples = np.zeros(16, np.float32)
    one = content_digest(ArraySource(DecodedMedia("audio", samples, sample_rate=16_000)))
    assert one != content_digest(ArraySource(DecodedMedia("audio", samples, sample_rate=8_000)))
    assert one != content_digest(
        ArraySource(DecodedMedia("audio", np.zeros(8, np.float64), sample_rate=16_000))
    )


def test_the_same_content_has_the_same_digest() -> None:
    assert array(PIXELS) == array(PIXELS.copy())
    assert array(PIXELS) == array(np.asfortranarray(PIXELS))
    assert array(PIXELS) != content_digest(EncodedSource(PIXELS.tobytes()))


# ------------------------------------------------------------------ framing

VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.text(max_size=4), st.binary(max_size=4),
        st.floats(allow_nan=False),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple), st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=6,
)  # fmt: skip


def shape(value: Any) -> Any:
    """Equal where two values are the same data, whatever Python calls equal (1 == True == 1.0)."""
    if isinstance(value, tuple):
        return ("tuple", *map(shape, value))
    if isinstance(value, dict):
        return ("dict", *sorted((k, repr(shape(v))) for k, v in value.items()))
    return type(value).__name__, repr(value)


@given(a=VALUES, b=VALUES)
def test_different_values_have_different_frames(a: Any, b: Any) -> None:
    assert (b"".join(frames(a)) == b"".join(frames(b))) == (shape(a) == shape(b))


@given(left=st.binary(max_size=6), right=st.binary(max_size=6), cut=st.integers(0, 6))
def test_a_byte_that_moves_between_neighbours_changes_the_key(left: bytes, right: bytes, cut: int) -> None:
    moved = (left + right)[:cut], (left + right)[cut:]
    assert (hash_values("k", left, right) == hash_values("k", *moved)) == ((left, right) == moved)


@given(
    parent=st.binary(max_size=40),
    ids=st.lists(st.integers(0, 1 << 40), max_size=6),
    media=st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 99)), max_size=3),
    other=st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 99)), max_size=3),
    cut=st.integers(0, 6),
)
def test_block_keys_are_framed(
    parent: bytes, ids: list[int], media: list[tuple[bytes, int]], other: list[tuple[bytes, int]], cut: int
) -> None:
    whole = block_key(parent, ids, media)
    assert (block_key(parent, ids, other) == whole) == (media == other)
    assert (block_key(parent, ids[:cut], media) == whole) == (cut >= len(ids))
    assert block_key(parent + b"\0", ids, media) != whole
    assert block_key(parent, tuple(ids), tuple(media)) == whole


class Colour(Enum):
    RED = 1


@dataclass(frozen=True)
class One:
    field: Any


@dataclass(frozen=True)
class Other:
    field: Any


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (One(1), Other(1)),
        (One(Colour.RED), One(1)),
        (np.zeros(2, np.int8), np.zeros(1, np.int16)),
        (np.zeros((2, 3)), np.zeros((3, 2))),
        (frozenset({1, 2}), (1, 2)),
        (0.0, -0.0),
    ],
)
def test_types_and_shapes_count(a: Any, b: Any) -> None:
    assert hash_values("k", a) != hash_values("k", b)


@pytest.mark.parametrize("make", [object, lambda: One(object()), lambda: lambda: None])
def test_what_is_not_plain_data_is_the_adapters_fault(make: Callable[[], Any]) -> None:
    with pytest.raises(PluginError, match="cannot be part of a cache key"):
        hash_values("k", make())


def test_numpy_numbers_are_numbers() -> None:
    assert hash_values("k", np.int64(3), np.float64(0.5)) == hash_values("k", 3, 0.5)
