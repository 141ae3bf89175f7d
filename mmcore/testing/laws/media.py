"""Media that are no media: the request's own error, never the adapter's."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from hypothesis import strategies as st
from PIL import Image

from mmcore.errors import InputError
from mmcore.testing.law import law
from mmcore.testing.subject import Subject


def _png() -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (80, 80, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def _wav(samples: int) -> bytes:
    import wave

    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(16_000)
        out.writeframes(bytes(2 * samples))
    return file.getvalue()


BAD: tuple[tuple[str, Any], ...] = (
    ("nothing", b""),
    ("no file", b"\x00\xff" * 300),
    ("half a picture", _png()[:2000]),
    ("a picture's header", _png()[:40]),
    ("half a sound's header", _wav(4000)[:30]),
    ("a sound without samples", _wav(0)),
    ("a number", 7),
    ("an empty array", np.zeros((0, 0, 3), np.uint8)),
)


@law(needs=("too_many_items_are_refused",), which=lambda s: st.sampled_from(range(len(BAD))))
def bad_media_are_refused(subject: Subject, which: int) -> None:
    """What cannot be read or is of another modality raises an `InputError`, at the header or on decoding."""
    what, value = BAD[which]
    for modality in subject.adapter.inputs.modalities:
        messages = [{"role": "user", "content": [{"type": modality, modality: value}]}]
        try:
            request = subject.pipeline.prepare_chat(messages, request_id="bad")
            subject.pipeline.preprocess(request.items[0])
        except InputError:
            continue
        except Exception as error:
            raise AssertionError(f"{what} as {modality}: {type(error).__name__}: {error}") from error
        raise AssertionError(f"{what} is taken for {modality}")
