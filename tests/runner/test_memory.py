"""How many KV blocks fit: by what is free, by what torch allows the process, by what was asked for."""

from __future__ import annotations

import mmcore_qwen2vl.testing
import pytest
import torch

from mmcore.config import EngineConfig, KvCacheConfig
from mmcore.decoder_config import DecoderConfig
from mmcore.errors import ConfigError
from mmcore.inputs.checkpoint import Checkpoint
from mmcore.plugins import load_plugins
from mmcore.runner.memory import activation_bytes, block_bytes, num_blocks

GIB = 1 << 30
CARD = torch.device("cuda", 0)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> DecoderConfig:
    checkpoint = Checkpoint(mmcore_qwen2vl.testing.write_tiny_checkpoint(tmp_path_factory.mktemp("m")))
    registry = load_plugins()
    found = registry.load_adapter(registry.resolve(checkpoint.config), checkpoint.config, checkpoint)
    return found.decoder


def on_a_card(
    decoder: DecoderConfig, monkeypatch: pytest.MonkeyPatch, *, free: int, fraction: float, held: int = 0
) -> tuple[int, int]:
    """(blocks of half the free memory, bytes they take) on a card of 100 GiB that reports this."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 100 * GIB))
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: fraction)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: held)
    config = EngineConfig(kv_cache=KvCacheConfig(free_gpu_memory_fraction=0.5), encoder_cache_bytes=GIB)
    blocks = num_blocks(decoder, config, torch.bfloat16, CARD)
    kept = activation_bytes(decoder, config, torch.bfloat16) + GIB
    return blocks, blocks * block_bytes(decoder, 16, torch.bfloat16) * 2 + kept


@pytest.mark.parametrize(
    ("free", "fraction", "held", "usable"),
    [
        (60 * GIB, 1.0, 20 * GIB, 60 * GIB),
        (60 * GIB, 0.1, 0, 10 * GIB),
        (60 * GIB, 0.1, 4 * GIB, 6 * GIB),
        (5 * GIB, 0.1, 2 * GIB, 5 * GIB),
    ],
)
def test_a_pool_keeps_to_what_the_process_is_allowed(
    decoder: DecoderConfig,
    monkeypatch: pytest.MonkeyPatch,
    free: int,
    fraction: float,
    held: int,
    usable: int,
) -> None:
    blocks, taken = on_a_card(decoder, monkeypatch, free=free, fraction=fraction, held=held)
    assert blocks > 0
    assert taken == pytest.approx(usable, rel=1e-3)


def test_no_memory_says_what_to_lower(decoder: DecoderConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="no memory for the KV cache: 0 MiB free"):
        on_a_card(decoder, monkeypatch, free=60 * GIB, fraction=0.01, held=GIB)


def test_max_tokens_wins(decoder: DecoderConfig) -> None:
    config = EngineConfig(kv_cache=KvCacheConfig(max_tokens=33))
    assert num_blocks(decoder, config, torch.bfloat16, CARD) == 3
