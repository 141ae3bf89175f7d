"""The laws of every adapter, on this one."""

from mmcore.testing.conformance import AdapterConformance


class TestBlip2(AdapterConformance):
    adapter = "blip2"
