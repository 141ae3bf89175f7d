"""How many KV blocks fit."""

from __future__ import annotations

import torch

from mmcore.config import EngineConfig
from mmcore.decoder_config import DecoderConfig
from mmcore.errors import ConfigError

CPU_POOL_BYTES = 1 << 30


def block_bytes(decoder: DecoderConfig, block_size: int, dtype: torch.dtype) -> int:
    """Bytes of one block: keys and values of all layers."""
    elements = 2 * decoder.num_layers * block_size * decoder.num_kv_heads * decoder.head_dim
    return elements * dtype.itemsize


def activation_bytes(decoder: DecoderConfig, config: EngineConfig, dtype: torch.dtype) -> int:
    """An upper estimate of a step's working memory: the widest layer's tensors and the logits in fp32."""
    width = 4 * decoder.hidden_size + 3 * decoder.intermediate_size + 3 * decoder.num_heads * decoder.head_dim
    tokens = config.max_num_tokens * width * dtype.itemsize
    logits = 3 * config.max_batch_size * decoder.vocab_size * 4
    return tokens + logits


def cache_dtype(config: EngineConfig, dtype: torch.dtype) -> torch.dtype:
    """What keys and values of a model of ``dtype`` are kept in."""
    return torch.float8_e4m3fn if config.kv_cache.dtype == "fp8" else dtype


def free_bytes(device: torch.device) -> int:
    """What is free on a GPU, and no more than is left of the part that torch allows this process
    (``torch.cuda.set_per_process_memory_fraction``)."""
    free, total = torch.cuda.mem_get_info(device)
    allowed = int(total * torch.cuda.get_per_process_memory_fraction(device))
    return min(free, allowed - torch.cuda.memory_reserved(device))


def num_blocks(decoder: DecoderConfig, config: EngineConfig, dtype: torch.dtype, device: torch.device) -> int:
    """Blocks of the KV pool of a model of ``dtype``. Raises `ConfigError` where not even one fits."""
    cache = config.kv_cache
    size = block_bytes(decoder, cache.tokens_per_block, cache_dtype(config, dtype))
    if cache.max_tokens is not None:
        return -(-cache.max_tokens // cache.tokens_per_block)
    if device.type == "cpu":
        return max(1, CPU_POOL_BYTES // size)
    torch.cuda.empty_cache()  # what an earlier engine left with torch is free, too
    free = free_bytes(device)
    reserved = activation_bytes(decoder, config, dtype) + config.encoder_cache_bytes
    usable = int((free - reserved) * cache.free_gpu_memory_fraction)
    if usable < size:
        raise ConfigError(
            f"no memory for the KV cache: {free >> 20} MiB free, {reserved >> 20} MiB kept for a step and "
            "the encoder cache; lower max_num_tokens, max_batch_size or encoder_cache_bytes"
        )
    return usable // size
