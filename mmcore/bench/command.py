"""``mmcore bench``: its commands, and what each of them prints."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmcore.bench import options

if TYPE_CHECKING:
    from mmcore import LLM
    from mmcore.bench.measure import Work

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_bench_command(commands: Commands) -> None:
    parser = commands.add_parser(
        "bench",
        help="measure how fast a model answers on this machine",
        description="Measure this machine: answers, requests that arrive, kernels, a start. A table, and "
        "--json FILE.",
    )
    of_bench = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_throughput(of_bench)
    _add_latency(of_bench)
    _add_serve_sim(of_bench)
    _add_kernels(of_bench)
    _add_startup(of_bench)


def _command(
    commands: Commands, name: str, run: Callable[[argparse.Namespace], int], text: str
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    parser.set_defaults(run=run)
    return parser


# ------------------------------------------------------------------ throughput


def _add_throughput(commands: Commands) -> None:
    parser = _command(
        commands, "throughput", run_throughput, "requests that come all at once: tokens a second"
    )
    options.add_model(parser)
    options.add_work(parser)
    parser.add_argument(
        "--num-requests",
        metavar="N",
        nargs="+",
        type=options.positive(int),
        default=[None],
        help="at once; several are measured one after the other (default: the dataset, or 1)",
    )
    parser.add_argument("--num-iters", metavar="N", type=options.positive(int), default=3, help="default: 3")
    options.add_output(parser)


def run_throughput(arguments: argparse.Namespace) -> int:
    from mmcore.bench import report
    from mmcore.bench.measure import measure

    works = [options.work(arguments, count) for count in arguments.num_requests]
    with options.open_llm(arguments) as llm:
        figures = []
        for n, work in enumerate(works):
            _tell(f"{work.requests} requests")
            seed = arguments.seed + 1000 * n
            figures.append(measure(llm, work, repeats=arguments.num_iters, seed=seed))
        print(report.throughput_table(figures))
        _profile(arguments, llm, works[-1])
    _save(arguments, "throughput", figures)
    return 0


# ------------------------------------------------------------------ latency


def _add_latency(commands: Commands) -> None:
    parser = _command(commands, "latency", run_latency, "one batch again and again: what each request takes")
    options.add_model(parser)
    options.add_work(parser)
    parser.add_argument(
        "--batch-size", metavar="N", type=options.positive(int), default=1, help="default: %(default)s"
    )
    parser.add_argument(
        "--num-iters", metavar="N", type=options.positive(int), default=10, help="default: 10"
    )
    parser.add_argument(
        "--num-iters-warmup", metavar="N", type=int, default=2, help="not counted (default: %(default)s)"
    )
    options.add_output(parser)


def run_latency(arguments: argparse.Namespace) -> int:
    from mmcore.bench import report
    from mmcore.bench.measure import latency

    work = options.work(arguments, arguments.batch_size)
    with options.open_llm(arguments) as llm:
        _tell(f"{arguments.num_iters_warmup} + {arguments.num_iters} batches of {work.requests}")
        figures = latency(
            llm,
            work,
            iterations=arguments.num_iters,
            warm_up=arguments.num_iters_warmup,
            seed=arguments.seed,
        )
        print(report.latency_table(figures))
        _profile(arguments, llm, work)
    _save(arguments, "latency", [figures])
    return 0


# ------------------------------------------------------------------ serve-sim


def _add_serve_sim(commands: Commands) -> None:
    parser = _command(
        commands, "serve-sim", run_serve_sim, "requests that arrive as a Poisson process: percentiles"
    )
    options.add_model(parser)
    options.add_work(parser)
    parser.add_argument("--num-requests", metavar="N", type=options.positive(int), help="default: 100")
    parser.add_argument(
        "--request-rate",
        metavar="R",
        nargs="+",
        type=options.positive(float),
        default=[1.0],
        help="a second; several are served one after the other; inf: all at once (default: 1)",
    )
    options.add_output(parser)


def run_serve_sim(arguments: argparse.Namespace) -> int:
    from mmcore.bench import report
    from mmcore.bench.measure import runs
    from mmcore.bench.serve_sim import serve

    work = options.work(arguments, arguments.num_requests, default=100)
    with options.open_llm(arguments) as llm:
        runs(llm, work, repeats=1, seed=arguments.seed + 1, warm_up=0)  # captures and compiles
        figures = []
        for n, rate in enumerate(arguments.request_rate):
            _tell(f"{work.requests} requests at {rate:g} a second")
            figures.append(serve(llm, work, rate, seed=arguments.seed + 1000 * (n + 1)))
        print(report.serve_table(figures))
        _profile(arguments, llm, work)
    _save(arguments, "serve-sim", figures)
    return 0


# ------------------------------------------------------------------ startup


def _add_startup(commands: Commands) -> None:
    parser = _command(commands, "startup", run_startup, "from LLM(...) to the first token, by stage")
    options.add_model(parser)
    parser.add_argument(
        "--num-iters", metavar="N", type=options.positive(int), default=3, help="each in a new process"
    )
    parser.add_argument("--json", metavar="FILE", help="also write the figures there", type=Path)
    options.add_made_up(parser)


def run_startup(arguments: argparse.Namespace) -> int:
    from mmcore.bench.startup import start_in_new_process, startup_table

    call, work = options.engine_options(arguments), options.made_up(arguments, 1)
    starts = []
    for n in range(arguments.num_iters):
        starts.append(start_in_new_process(call, work))
        _tell(f"start {n + 1}: ready after {starts[-1].ready:.2f} s")
    print(startup_table(starts))
    _save(arguments, "startup", starts)
    return 0


# ------------------------------------------------------------------ kernels


def _add_kernels(commands: Commands) -> None:
    parser = _command(commands, "kernels", run_kernels, "each kernel beside torch and its roofline, on a GPU")
    parser.add_argument("--only", metavar="NAME", nargs="+", help="kernels whose name holds one of these")
    parser.add_argument("--json", metavar="FILE", help="also write the figures there", type=Path)


def run_kernels(arguments: argparse.Namespace) -> int:
    from mmcore.bench.kernel_times import kernel_table, time_kernels

    rows = []
    for row in time_kernels(arguments.only):
        rows.append(row)
        _tell(f"{row.kernel} {row.shape}: {row.us:.1f} us")
    print(kernel_table(rows))
    _save(arguments, "kernels", rows)
    return 0


# ------------------------------------------------------------------ all


def _profile(arguments: argparse.Namespace, llm: LLM, work: Work) -> None:
    if arguments.profile is None:
        return
    from mmcore.bench.profile import profile

    print(f"\n{profile(llm, work, arguments.profile, seed=arguments.seed + 500)}")
    _tell(f"the trace is in {arguments.profile}; chrome://tracing and ui.perfetto.dev show it")


def _save(arguments: argparse.Namespace, command: str, rows: Sequence[Any]) -> None:
    if arguments.json is None:
        return
    from mmcore.bench import report

    asked = options.asked(arguments)
    report.save(arguments.json, command=command, asked=asked, rows=[asdict(row) for row in rows])


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
