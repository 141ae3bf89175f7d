"""Options that several commands share, and what they mean to `LLM` and `SamplingParams`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmcore import SamplingParams

DTYPES = ("auto", "float32", "float16", "bfloat16")
KV_DTYPES = ("auto", "fp8")
DEVICES = ("auto", "cpu", "cuda")


def add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a checkpoint folder, or a hub name")


def add_sampling(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--max-tokens", metavar="N", type=int, help="at most this many new tokens")
    parser.add_argument("--temperature", metavar="T", type=float, help="0 takes the likeliest token")
    parser.add_argument("--top-k", metavar="K", type=int, help="sample from the K likeliest tokens only")
    parser.add_argument("--top-p", metavar="P", type=float, help="sample from the likeliest share P only")
    parser.add_argument("--min-p", metavar="P", type=float, help="drop tokens under P times the likeliest")
    parser.add_argument("--stop", metavar="TEXT", action="append", help="end before it; may be repeated")
    parser.add_argument("--beam-width", metavar="N", type=int, help="search with N beams instead of sampling")
    parser.add_argument("--seed", metavar="N", type=int, help="makes a sampled answer repeatable")


def add_running(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dtype", choices=DTYPES, default="auto", help="default: %(default)s")
    parser.add_argument("--device", choices=DEVICES, default="auto", help="default: %(default)s")
    parser.add_argument(
        "--kv-cache-dtype", choices=KV_DTYPES, default="auto",
        help="auto: the model's; fp8: half the bytes, four significant bits (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--adapter", metavar="NAME", help="where several serve the checkpoint, or an extension"
    )


def sampling(arguments: argparse.Namespace) -> SamplingParams:
    """Raises `SamplingParamsError`."""
    from mmcore import SamplingParams

    names = ("max_tokens", "temperature", "top_k", "top_p", "min_p", "stop", "beam_width", "seed")
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    if "beam_width" in given:
        given["use_beam_search"] = True
    return SamplingParams(**given)


def check_files(names: Sequence[str]) -> None:
    """A mistyped name shall not cost the loading of a model. What is no path is left to the media policy."""
    from mmcore.errors import MediaFileError

    for name in names:
        if ":" not in name and not os.path.exists(name):
            raise MediaFileError(f"there is no such file: {name!r}")
