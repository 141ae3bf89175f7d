"""The laws of every adapter, on this one."""

from mmcore.testing.conformance import AdapterConformance


class TestQwen2vl(AdapterConformance):
    adapter = "qwen2vl"
