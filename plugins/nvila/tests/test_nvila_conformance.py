"""The laws of every adapter, on this one."""

from mmcore.testing.conformance import AdapterConformance


class TestNvila(AdapterConformance):
    adapter = "nvila"
