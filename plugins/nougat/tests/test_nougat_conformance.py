"""The laws of every adapter, on this one."""

from mmcore.testing.conformance import AdapterConformance


class TestNougat(AdapterConformance):
    adapter = "nougat"
