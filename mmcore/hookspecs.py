"""The hooks a plugin may implement. Entry-point group: ``mmcore``.

    from mmcore import AdapterInfo, hookimpl

    @hookimpl
    def mmcore_register_adapters():
        return [AdapterInfo(name="my-family", ...)]

Adapters and backends are collected from all plugins; observers see and never steer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    import argparse

    from mmcore.manifest import AdapterInfo, BackendInfo
    from mmcore.request import RequestOutput

hookspec = pluggy.HookspecMarker("mmcore")
hookimpl = pluggy.HookimplMarker("mmcore")


@hookspec
def mmcore_register_adapters() -> Iterable[AdapterInfo]:
    """The adapters of this plugin."""
    raise NotImplementedError


@hookspec
def mmcore_register_attention_backends() -> Iterable[BackendInfo]:
    """The attention backends of this plugin. Collected and listed; the runner does not choose them yet."""
    raise NotImplementedError


@hookspec(firstresult=True)
def mmcore_fetch_media(url: str, policy: Any) -> bytes | None:
    """The bytes behind a URL of a scheme that the core does not know (``s3://``), or None to pass.

    ``policy`` is the `MediaPolicy` in force. What is returned passes the same budgets.
    """


@hookspec
def mmcore_add_cli_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add commands to ``mmcore``. A parser's ``run`` takes the parsed arguments, gives an exit code."""


@hookspec
def mmcore_add_routes(app: Any) -> None:
    """Add routes to the HTTP server's application."""


@hookspec
def mmcore_step_finished(stats: Any) -> None:
    """Called after each engine step with its `StepStats`."""


@hookspec
def mmcore_request_finished(output: RequestOutput) -> None:
    """Called when a request has ended, in whatever way."""
