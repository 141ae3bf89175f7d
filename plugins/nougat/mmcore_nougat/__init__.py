"""Nougat (Blecher et al. 2023, arXiv 2308.13418) and Donut (Kim et al. 2022, arXiv 2111.15664) for mmcore."""

from __future__ import annotations

from mmcore.hookspecs import hookimpl
from mmcore.manifest import AdapterInfo


@hookimpl
def mmcore_register_adapters() -> list[AdapterInfo]:
    return [
        AdapterInfo(
            name="nougat",
            target="mmcore_nougat.adapter:NougatAdapter",
            architectures=("VisionEncoderDecoderModel",),
            description="pages of papers to markdown, forms and receipts to fields",
            testing="mmcore_nougat.conformance:FAMILY",
        )
    ]
