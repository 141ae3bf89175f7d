"""Qwen2-VL and Qwen2.5-VL (Wang et al. 2024, Bai et al. 2025) for mmcore: pictures and videos."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmcore.hookspecs import hookimpl
from mmcore.manifest import AdapterInfo

if TYPE_CHECKING:
    import argparse


@hookimpl
def mmcore_register_adapters() -> list[AdapterInfo]:
    return [
        AdapterInfo(
            name="qwen2vl",
            target="mmcore_qwen2vl.adapter:Qwen2VLAdapter",
            architectures=("Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration"),
            description="pictures, videos and text to text",
            testing="mmcore_qwen2vl.conformance:FAMILY",
        )
    ]


@hookimpl
def mmcore_add_cli_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from mmcore_qwen2vl.cli import add_commands

    add_commands(subparsers)
