"""``mmcore generate``: one prompt, with pictures, sound or videos, through any checkpoint."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mmcore.cli.loading import loaded
from mmcore.cli.options import add_model, add_running, add_sampling, check_files, sampling
from mmcore.cli.terminal import for_screen, print_growing

if TYPE_CHECKING:
    from mmcore import RequestOutput, TextPrompt


def add_generate_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "generate",
        help="answer one prompt about pictures, sound or videos",
        description=(
            "Answer one prompt: TEXT becomes one user message of the checkpoint's chat template, the media "
            "in order before it. A placeholder in TEXT says where the media go instead. Without media, "
            "--raw continues TEXT as it stands, which is also what a checkpoint without a template does."
        ),
    )
    add_model(parser)
    parser.add_argument("--prompt", metavar="TEXT", default="", help="what to ask (default: nothing)")
    parser.add_argument("--image", metavar="FILE", action="append", help="a picture; may be repeated")
    parser.add_argument("--audio", metavar="FILE", action="append", help="a recording; may be repeated")
    parser.add_argument("--video", metavar="FILE", action="append", help="a video; may be repeated")
    parser.add_argument(
        "--raw", action="store_true", help="continue TEXT as it stands; its special tokens are active"
    )
    add_sampling(parser)
    add_running(parser)
    parser.add_argument(
        "--stream",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="print the answer as it grows (default: yes)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the text")
    parser.set_defaults(run=run_generate)


def run_generate(arguments: argparse.Namespace) -> int:
    import json

    params = sampling(arguments)
    media = _media(arguments)
    check_files([name for names in media.values() for name in names])
    streams = arguments.stream and not arguments.json
    with loaded(arguments) as (llm, has_template):
        if media or arguments.raw or not has_template:
            prompt: TextPrompt = {"prompt": arguments.prompt, "multi_modal_data": media}
            handle = llm.generate_async(prompt, params, streaming=streams)
        else:
            messages = [{"role": "user", "content": arguments.prompt}]
            handle = llm.chat_async(messages, params, streaming=streams)
        if streams:
            for _ in print_growing(handle):
                pass
            print()
        else:
            output = handle.result()
            print(json.dumps(as_json(output)) if arguments.json else for_screen(output.text, sys.stdout))
    return 0


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


def _media(arguments: argparse.Namespace) -> dict[str, list[str]]:
    """File names by modality, where there are any."""
    found = {name: getattr(arguments, name) for name in ("image", "audio", "video")}
    return {name: files for name, files in found.items() if files}
