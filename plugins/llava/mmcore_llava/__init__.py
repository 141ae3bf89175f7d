"""LLaVA-1.5 (Liu et al. 2023), LLaVA-NeXT and LLaVA-OneVision (Li et al. 2024) for mmcore."""

from __future__ import annotations

from mmcore.hookspecs import hookimpl
from mmcore.manifest import AdapterInfo

GENERATIONS = ("Llava", "LlavaNext", "LlavaOnevision")


@hookimpl
def mmcore_register_adapters() -> list[AdapterInfo]:
    return [
        AdapterInfo(
            name="llava",
            target="mmcore_llava.adapter:LlavaAdapter",
            architectures=tuple(f"{name}ForConditionalGeneration" for name in GENERATIONS),
            description="pictures, video and text to text",
            testing="mmcore_llava.conformance:FAMILY",
        )
    ]
