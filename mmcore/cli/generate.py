"""``mmcore generate``: one prompt, with pictures or sound, through any checkpoint."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from mmcore import LLM, RequestOutput, SamplingParams, TextPrompt

DTYPES = ("auto", "float32", "float16", "bfloat16")
DEVICES = ("auto", "cpu", "cuda")
CONTROLS = {code: "\ufffd" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
"""Characters that would steer a terminal, and what stands for them there."""


def add_generate_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "generate",
        help="answer one prompt about pictures or sound",
        description=(
            "Answer one prompt. With pictures or recordings and no placeholder in TEXT, it becomes one "
            "user message: the media in order, then the text. TEXT alone is continued as it stands."
        ),
    )
    parser.add_argument("model", metavar="MODEL", help="a checkpoint folder, or a hub name")
    parser.add_argument("--prompt", metavar="TEXT", default="", help="what to ask (default: nothing)")
    parser.add_argument("--image", metavar="FILE", action="append", help="a picture; may be repeated")
    parser.add_argument("--audio", metavar="FILE", action="append", help="a recording; may be repeated")
    _add_sampling(parser)
    _add_running(parser)
    parser.set_defaults(run=run_generate)


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--max-tokens", metavar="N", type=int, help="at most this many new tokens")
    parser.add_argument("--temperature", metavar="T", type=float, help="0 takes the likeliest token")
    parser.add_argument("--seed", metavar="N", type=int, help="makes a sampled answer repeatable")


def _add_running(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dtype", choices=DTYPES, default="auto", help="default: %(default)s")
    parser.add_argument("--device", choices=DEVICES, default="auto", help="default: %(default)s")
    parser.add_argument(
        "--adapter", metavar="NAME", help="where several serve the checkpoint, or an extension"
    )
    parser.add_argument(
        "--stream",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="print the answer as it grows (default: yes)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the text")


def run_generate(arguments: argparse.Namespace) -> int:
    import json

    params = _sampling(arguments)
    _check_files((*(arguments.image or ()), *(arguments.audio or ())))
    from mmcore import LLM  # imported here: neither `mmcore --help` nor a wrong option shall wait for torch

    options = {"dtype": arguments.dtype, "device": arguments.device, "adapter": arguments.adapter}
    with LLM(arguments.model, **options) as llm:
        if arguments.stream and not arguments.json:
            stream(llm, _prompt(arguments), params)
        else:
            output = llm.generate(_prompt(arguments), params)
            print(json.dumps(as_json(output)) if arguments.json else for_screen(output.text, sys.stdout))
    return 0


def stream(llm: LLM, prompt: TextPrompt, params: SamplingParams) -> RequestOutput | None:
    """Print an answer as it grows, and give its last state."""
    shown, output = 0, None
    for output in llm.generate_async(prompt, params, streaming=True):
        sys.stdout.write(for_screen(output.text[shown:], sys.stdout))
        sys.stdout.flush()
        shown = len(output.text)
    print()
    return output


def for_screen(text: str, stream: TextIO) -> str:
    """A model's text as it may go to ``stream``: a file or pipe gets all of it, a terminal no escapes."""
    return text.translate(CONTROLS) if stream.isatty() else text


def as_json(output: RequestOutput) -> dict[str, Any]:
    """An answer for programs; times in seconds from the request's arrival."""
    timings = asdict(output.timings)
    arrived = timings.pop("arrived")
    return {
        "text": output.text,
        "token_ids": list(output.token_ids),
        "finish_reason": output[0].finish_reason,
        "stop_reason": output[0].stop_reason,
        "prompt_tokens": len(output.prompt_token_ids),
        "cached_tokens": output.cached_tokens,
        "encoded_items": output.encoded_items,
        "fields": dict(output[0].fields),
        "seconds": {name: round(max(0.0, moment - arrived), 6) for name, moment in timings.items()},
    }


def _prompt(arguments: argparse.Namespace) -> TextPrompt:
    media = {name: getattr(arguments, name) for name in ("image", "audio") if getattr(arguments, name)}
    return {"prompt": arguments.prompt, "multi_modal_data": media} if media else {"prompt": arguments.prompt}


def _check_files(names: Sequence[str]) -> None:
    """A mistyped name shall not cost the loading of a model. What is no path is left to the media policy."""
    from mmcore.errors import MediaFetchError

    for name in names:
        if ":" not in name and not os.path.exists(name):
            raise MediaFetchError(f"there is no such file: {name!r}")


def _sampling(arguments: argparse.Namespace) -> SamplingParams:
    from mmcore import SamplingParams

    names = ("max_tokens", "temperature", "seed")
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    return SamplingParams(**given)
