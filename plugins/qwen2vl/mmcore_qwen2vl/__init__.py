"""Qwen2-VL and Qwen2.5-VL (Wang et al. 2024, Bai et al. 2025) for mmcore: one and many pictures."""

from mmcore.hookspecs import hookimpl
from mmcore.manifest import AdapterInfo


@hookimpl
def mmcore_register_adapters() -> list[AdapterInfo]:
    return [
        AdapterInfo(
            name="qwen2vl",
            target="mmcore_qwen2vl.adapter:Qwen2VLAdapter",
            architectures=("Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration"),
            description="pictures and text to text",
        )
    ]
