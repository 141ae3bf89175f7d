"""Options of `LLM(...)`, the server and the command line: checked where people hand them in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mmcore.errors import ConfigError

Dtype = Literal["auto", "float32", "float16", "bfloat16"]
Device = Literal["auto", "cpu", "cuda"]
LoadFormat = Literal["auto", "dummy"]


class Config(BaseModel):
    """Frozen options; what pydantic refuses becomes a `ConfigError` that names the option."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, **options: Any) -> None:
        try:
            super().__init__(**options)
        except ValidationError as error:
            raise ConfigError(_explain(type(self).__name__, error)) from None


def _explain(owner: str, error: ValidationError) -> str:
    problems = (
        f"{'.'.join(str(part) for part in detail['loc'])}: {detail['msg']} (got {detail['input']!r})"
        for detail in error.errors()
    )
    return f"{owner}: {'; '.join(problems)}"


class KvCacheConfig(Config):
    """The paged KV cache. ``max_tokens`` wins over ``free_gpu_memory_fraction`` where both apply.

    On a GPU the pool takes ``free_gpu_memory_fraction`` of the memory left after the weights; on a CPU
    ``max_tokens`` tokens, or 1 GiB.
    """

    enable_block_reuse: bool = True
    free_gpu_memory_fraction: float = Field(default=0.9, gt=0.0, lt=1.0)
    max_tokens: int | None = Field(default=None, gt=0)
    dtype: Literal["auto", "fp8"] = "auto"
    """``auto``: the model's. ``fp8``: e4m3, half the bytes of half precision, so twice the tokens fit and
    decoding reads half as much; keys and values keep four significant bits."""
    host_cache_size: int = Field(default=0, ge=0)
    """Bytes of host memory behind the device pool."""
    tokens_per_block: int = Field(default=16, ge=1, le=256)


class MediaPolicy(Config):
    """What may be fetched and how much may be decoded; budgets are checked before decoding."""

    allow_http: bool = True
    allowed_hosts: tuple[str, ...] = ()
    """Empty: every public host."""
    media_root: Path | None = None
    """Folder whose files a network client may name; None: no local paths from the network."""
    trust_local: bool = True
    """The caller is this process: local paths are fine. A server sets False."""
    max_bytes: int = Field(default=64 << 20, gt=0)
    max_pixels: int = Field(default=64 << 20, gt=0)
    """Pixels of one picture, or of one decoded frame."""
    max_samples: int = Field(default=3600 * 48_000 * 2, gt=0)
    """Audio samples x channels of one item."""
    max_video_frames: int = Field(default=1 << 18, gt=0)
    """Frames that a video may have, whether they are decoded or not."""
    max_video_seconds: float = Field(default=4 * 3600.0, gt=0.0)
    max_video_pixels: int = Field(default=128 << 20, gt=0)
    """Frames x pixels of one video as planned: what is held at once."""
    max_request_items: int = Field(default=1024, gt=0)
    max_request_bytes: int = Field(default=1 << 30, gt=0)
    max_request_pixels: int = Field(default=512 << 20, gt=0)
    """Pixels of all pictures and planned frames of a request."""
    max_request_samples: int = Field(default=4 * 3600 * 48_000, gt=0)
    """Audio samples of all items of a request, of one channel each."""
    fetch_timeout: float = Field(default=10.0, gt=0.0)
    max_redirects: int = Field(default=3, ge=0)


class EngineConfig(Config):
    """One engine. None means: derived from the checkpoint and the device."""

    dtype: Dtype = "auto"
    device: Device = "auto"
    kv_cache: KvCacheConfig = KvCacheConfig()
    media: MediaPolicy = MediaPolicy()
    max_batch_size: int = Field(default=256, ge=1)
    max_beam_width: int = Field(default=16, ge=1)
    """Beams of one request."""
    max_num_tokens: int = Field(default=8192, ge=1)
    """Token budget of one step."""
    max_seq_len: int | None = Field(default=None, ge=1)
    encoder_cache_bytes: int = Field(default=1 << 30, ge=0)
    encoder_work: int = Field(default=20_000_000_000_000, gt=0)
    """Encoder floating point operations of one step; a single larger item still runs, alone."""
    load_format: LoadFormat = "auto"
    """``dummy``: random weights instead of the checkpoint's, made on the device, to measure speed."""
    overlap: bool | None = None
    """Lay out a step while the one before runs. None: on a GPU; on a CPU it only makes tokens a step late."""
    cuda_graphs: bool = True
    """Replay decode steps as captured graphs; on a CPU nothing is captured."""
    preprocess_workers: int | None = Field(default=None, ge=1)
    preprocess_timeout: float = Field(default=120.0, gt=0.0)
    """Seconds an item may take to become ready."""

    @property
    def num_workers(self) -> int:
        """Threads that prepare requests, and as many that preprocess items: one a core, at most 16."""
        return self.preprocess_workers or max(1, min(16, os.cpu_count() or 1))
