"""A command's model: torch is imported here, and a terminal is told that it takes a while."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mmcore.cli.terminal import notice

if TYPE_CHECKING:
    from mmcore import LLM


@contextmanager
def loaded(arguments: argparse.Namespace) -> Iterator[tuple[LLM, bool]]:
    """(the model of `options.add_model` and `options.add_running`, whether it has a chat template)."""
    with notice(f"loading {arguments.model} ..."):
        from mmcore.inputs.checkpoint import Checkpoint
        from mmcore.inputs.hub import resolve_model

        folder = resolve_model(arguments.model)
        has_template = Checkpoint(folder).chat_template is not None
        from mmcore import LLM, KvCacheConfig

        llm = LLM(
            folder,
            dtype=arguments.dtype,
            device=arguments.device,
            adapter=arguments.adapter,
            kv_cache_config=KvCacheConfig(dtype=arguments.kv_cache_dtype),
        )
    with llm:
        yield llm, has_template
