"""Hooks beside adapters: media, observers, commands."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from mmcore.errors import MediaFetchError

HOOKS = """
from mmcore import hookimpl

seen = []

@hookimpl
def mmcore_fetch_media(url, policy):
    if url.startswith("fail:"):
        raise OSError("secret address 10.0.0.7")
    return bytearray(b"media") if url.startswith("s3:") else None

@hookimpl
def mmcore_request_finished(output):
    seen.append(output)

@hookimpl
def mmcore_add_cli_commands(subparsers):
    subparsers.append("command")
"""

STUBBORN = """
from mmcore import hookimpl

@hookimpl
def mmcore_request_finished(output):
    raise ValueError("observers never steer")

@hookimpl
def mmcore_add_cli_commands(subparsers):
    raise ValueError("no command today")
"""


@pytest.fixture
def registry(site: Any) -> Any:
    site.install("mmcore-plugin-hooks", {"hooks": "fake_hooks"}, {"fake_hooks": HOOKS})
    for name in ("earlier", "later"):
        site.install(f"a-{name}", {f"a{name}": f"fake_{name}"}, {f"fake_{name}": STUBBORN})
    return site.load()


def test_media_of_a_scheme_that_a_plugin_knows(registry: Any) -> None:
    assert registry.fetch_media("s3://bucket/cat.png", None) == b"media"
    assert registry.fetch_media("gs://bucket/cat.png", None) is None


def test_a_failing_fetch_keeps_the_address_to_itself(registry: Any) -> None:
    with pytest.raises(MediaFetchError, match="'fail:'") as raised:
        registry.fetch_media("fail://x", None)
    assert "10.0.0.7" not in str(raised.value)


def test_an_observer_that_raises_is_logged_and_the_others_see(
    registry: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "mmcore.plugins.registry"):
        registry.observe("mmcore_request_finished", output="done")
    (hooks,) = (p.plugin for p in registry.inventory.plugins if p.origin.name == "hooks")
    assert hooks.seen == ["done"]
    assert [record.getMessage().count("observers never steer") for record in caplog.records] == [1, 1]


def test_commands_are_added_plugin_by_plugin(registry: Any) -> None:
    commands: list[str] = []
    failures = registry.call_each("mmcore_add_cli_commands", subparsers=commands)
    assert commands == ["command"]
    assert [failure.origin.name for failure in failures] == ["aearlier", "alater"]
    assert "no command today" in failures[0].reason
