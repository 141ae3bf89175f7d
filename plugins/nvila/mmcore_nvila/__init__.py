"""NVILA (Liu et al. 2024) and VILA 1.5 (Lin et al. 2023) for mmcore."""

from __future__ import annotations

from mmcore.hookspecs import hookimpl
from mmcore.manifest import AdapterInfo

ARCHITECTURES = (
    "LlavaLlamaModel",
    "VILAForCasualLM",
    "NVILAForConditionalGeneration",
    "NVILALiteForConditionalGeneration",
)
"""Folders of the published code, its remote-code form (spelt as there), and flat files."""


@hookimpl
def mmcore_register_adapters() -> list[AdapterInfo]:
    return [
        AdapterInfo(
            name="nvila",
            target="mmcore_nvila.adapter:NvilaAdapter",
            architectures=ARCHITECTURES,
            description="pictures, video and text to text",
            testing="mmcore_nvila.conformance:FAMILY",
        )
    ]
