"""Whisper (Radford et al. 2022) for mmcore: every size, multilingual and English-only."""

from mmcore.hookspecs import hookimpl
from mmcore.manifest import AdapterInfo


@hookimpl
def mmcore_register_adapters() -> list[AdapterInfo]:
    return [
        AdapterInfo(
            name="whisper",
            target="mmcore_whisper.adapter:WhisperAdapter",
            architectures=("WhisperForConditionalGeneration",),
            description="speech to text with segment times, recordings of any length",
            testing="mmcore_whisper.conformance:FAMILY",
        )
    ]
