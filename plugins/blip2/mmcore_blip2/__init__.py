"""BLIP-2 (Li et al. 2023, arXiv 2301.12597) for mmcore: pictures and text to text by OPT or FLAN-T5."""

from __future__ import annotations

from mmcore.hookspecs import hookimpl
from mmcore.manifest import AdapterInfo


@hookimpl
def mmcore_register_adapters() -> list[AdapterInfo]:
    return [
        AdapterInfo(
            name="blip2",
            target="mmcore_blip2.adapter:Blip2Adapter",
            architectures=("Blip2ForConditionalGeneration",),
            description="captions and answers about a picture",
            testing="mmcore_blip2.conformance:FAMILY",
        )
    ]
