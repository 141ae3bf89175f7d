"""mmcore: a plugin-architecture runtime for multimodal inference.

Names are loaded when first used, so that ``import mmcore`` costs nothing and never imports torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from mmcore.config import EngineConfig as EngineConfig
    from mmcore.config import KvCacheConfig as KvCacheConfig
    from mmcore.config import MediaPolicy as MediaPolicy
    from mmcore.errors import MMCoreError as MMCoreError
    from mmcore.hookspecs import hookimpl as hookimpl
    from mmcore.inputs.prompt import TextPrompt as TextPrompt
    from mmcore.inputs.prompt import TokensPrompt as TokensPrompt
    from mmcore.llm import LLM as LLM
    from mmcore.manifest import AdapterInfo as AdapterInfo
    from mmcore.manifest import BackendInfo as BackendInfo
    from mmcore.request import CompletionOutput as CompletionOutput
    from mmcore.request import RequestOutput as RequestOutput
    from mmcore.sampling_params import SamplingParams as SamplingParams
    from mmcore.transcript import Transcript as Transcript
    from mmcore.transcript import TranscriptSegment as TranscriptSegment

_HOMES = {
    "LLM": "mmcore.llm",
    "TextPrompt": "mmcore.inputs.prompt",
    "TokensPrompt": "mmcore.inputs.prompt",
    "SamplingParams": "mmcore.sampling_params",
    "KvCacheConfig": "mmcore.config",
    "EngineConfig": "mmcore.config",
    "MediaPolicy": "mmcore.config",
    "RequestOutput": "mmcore.request",
    "CompletionOutput": "mmcore.request",
    "Transcript": "mmcore.transcript",
    "TranscriptSegment": "mmcore.transcript",
    "MMCoreError": "mmcore.errors",
    "AdapterInfo": "mmcore.manifest",
    "BackendInfo": "mmcore.manifest",
    "hookimpl": "mmcore.hookspecs",
}

__all__ = ["__version__", *sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mmcore' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
