"""The names that snippets for TensorRT-LLM's ``llmapi`` import, loaded when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mmcore

if TYPE_CHECKING:
    from mmcore.config import KvCacheConfig as KvCacheConfig
    from mmcore.inputs.prompt import TextPrompt as TextPrompt
    from mmcore.inputs.prompt import TokensPrompt as TokensPrompt
    from mmcore.llm import LLM as LLM
    from mmcore.request import CompletionOutput as CompletionOutput
    from mmcore.request import RequestOutput as RequestOutput
    from mmcore.sampling_params import SamplingParams as SamplingParams

__all__ = [
    "LLM",
    "CompletionOutput",
    "KvCacheConfig",
    "RequestOutput",
    "SamplingParams",
    "TextPrompt",
    "TokensPrompt",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'mmcore.llmapi' has no attribute {name!r}")
    return getattr(mmcore, name)


def __dir__() -> list[str]:
    return sorted(__all__)
