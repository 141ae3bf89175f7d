"""The options of ``mmcore bench``."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mmcore.bench.workload import Workload
from mmcore.errors import ConfigError

if TYPE_CHECKING:
    from mmcore import LLM


def add_bench_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "bench",
        help="measure how fast a checkpoint answers on this machine",
        description="Measure answers to random pictures, sound or text: time to the first token, time a "
        "token, tokens a second. Medians of several runs, each with media that no cache has seen.",
    )
    parser.add_argument("model", metavar="MODEL", help="a checkpoint folder, or a hub name")
    parser.add_argument("--random-weights", action="store_true", help="use its shapes, make its weights up")
    parser.add_argument("--requests", metavar="N", type=int, default=1, help="at once (default: %(default)s)")
    parser.add_argument("--picture", metavar="WxH", help="each prompt brings a picture of this size")
    parser.add_argument("--seconds", metavar="S", type=float, default=0.0, help="each brings so much sound")
    parser.add_argument(
        "--distinct", metavar="N", type=int, default=0, help="media shared by all requests (default: none is)"
    )
    parser.add_argument(
        "--prompt-tokens", metavar="N", type=int, default=0, help="length of a prompt with its media"
    )
    parser.add_argument("--new-tokens", metavar="N", type=int, default=128, help="default: %(default)s")
    parser.add_argument("--repeats", metavar="N", type=int, default=3, help="runs (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the figures there")
    parser.add_argument("--host-time", action="store_true", help="also show where the host's time goes")
    parser.set_defaults(run=run_bench)


def run_bench(arguments: argparse.Namespace) -> int:
    from mmcore.bench import report
    from mmcore.bench.host_time import host_time
    from mmcore.bench.measure import measure

    workload = _workload(arguments)
    begin = time.monotonic()
    with _llm(arguments) as llm:
        ready = time.monotonic() - begin
        figures = [measure(llm, workload, repeats=arguments.repeats, seed=1)]
        if arguments.host_time:
            with host_time(llm._engine) as watch:
                measure(llm, workload, repeats=1, seed=1000)
            print(watch.table())
    print(f"ready after {ready:.1f} s")
    print(report.table(figures))
    if arguments.json is not None:
        report.save(arguments.json, figures, ready_seconds=ready)
    return 0


def _workload(arguments: argparse.Namespace) -> Workload:
    size = None
    if arguments.picture is not None:
        width, _, height = arguments.picture.partition("x")
        if not (width.isdigit() and height.isdigit()):
            raise ConfigError(f"--picture {arguments.picture}: give width and height, as in 448x448")
        size = int(width), int(height)
    if size is not None and arguments.seconds:
        raise ConfigError("--picture and --seconds are two workloads; give one of them")
    return Workload(
        name="picture" if size else "sound" if arguments.seconds else "text",
        requests=arguments.requests,
        picture=size,
        seconds=arguments.seconds,
        distinct=arguments.distinct,
        prompt_tokens=arguments.prompt_tokens,
        new_tokens=arguments.new_tokens,
    )


def _llm(arguments: argparse.Namespace) -> LLM:
    from mmcore import LLM

    print(f"loading {arguments.model}", file=sys.stderr)
    return LLM(arguments.model, load_format="dummy" if arguments.random_weights else "auto")
