"""Content keys, in layers: BLAKE3-256 over framed values.

    content digest ─ processor key ─ encoder key ─ context key
                                         │             │
                            block key (offset in item) └ root key ─ block key ─ block key ...

Template, limits, decoding and weight rules are in none of them. The salt is in the processor key and in the
root key, hence in all. A client's UUID is mixed into the processor key and never stands alone.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache
from struct import pack
from typing import Any

from blake3 import blake3

from mmcore.adapter import ContextStage, Encoder, InputProcessor
from mmcore.inputs.framing import SCHEME, Framed, hash_values
from mmcore.request import ArraySource, EncodedSource, ItemPlan, ItemSource, Modality

_BLOCK = SCHEME + b"block"


def content_digest(source: ItemSource) -> bytes:
    """Of a file: its bytes. Of a picture: mode, size, pixels. Of sound: dtype, rate, samples."""
    if isinstance(source, EncodedSource):
        return hash_values("file", source.data)
    if isinstance(source, ArraySource):
        media = source.media
        return hash_values("array", media.modality, media.sample_rate, media.times, media.data)
    return hash_values("rows", source.rows)


def processor_key(
    modality: Modality,
    content: bytes,
    processor: InputProcessor | Framed,
    options: Mapping[str, Any],
    plan: ItemPlan,
    *,
    uuid: str = "",
    salt: str = "",
) -> bytes:
    """What an item's preprocessed arrays depend on. ``processor`` has the item's options applied."""
    return hash_values("processor", modality, content, processor, options, plan, uuid, salt)


def encoder_key(
    processor: bytes,
    encoder: Encoder | Framed,
    checkpoint: bytes,
    *,
    dtype: str,
    quantization: str = "",
    backend: str = "numpy",
) -> bytes:
    """What an item's rows depend on. ``backend`` names the media operations that preprocess."""
    return hash_values("encoder", processor, encoder, checkpoint, dtype, quantization, backend)


def context_key(
    root: bytes,
    encoder_keys: Sequence[bytes],
    text_ids: Sequence[int] = (),
    stage: ContextStage | None = None,
) -> bytes:
    """What paged cross-attention states depend on: items in order, and the text that the stage reads.

    ``root`` is the root key without them: checkpoint, KV dtype and salt count even where there is no item.
    """
    return hash_values("context", root, tuple(encoder_keys), tuple(text_ids), stage)


@lru_cache(maxsize=256)
def root_key(checkpoint: bytes, kv_dtype: str, *, salt: str = "", cross: bytes | None = None) -> bytes:
    """Root of a request's chain of block keys."""
    return hash_values("root", checkpoint, kv_dtype, salt, cross)


def block_key(parent: bytes, token_ids: Sequence[int], media: Sequence[tuple[bytes, int]] = ()) -> bytes:
    """Of a full block: its parent's key, its tokens, and (encoder key, first row) of each item in it."""
    pieces: list[Any] = [
        _BLOCK,
        pack("<III", len(parent), len(token_ids), len(media)),
        parent,
        array("q", token_ids),
    ]
    for key, offset in media:
        pieces += (pack("<Iq", len(key), offset), key)
    return blake3(b"".join(pieces)).digest()
