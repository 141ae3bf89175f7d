"""``mmcore demo``: the small reader that comes with this package reads a picture it has never seen."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mmcore.cli.terminal import notice

if TYPE_CHECKING:
    from mmcore import LLM, RequestOutput, SamplingParams

PACKAGE = Path(__file__).parent
READER = PACKAGE / "reader"
PICTURES = PACKAGE / "demo"
QUESTIONS = ("What does the picture say?", "Please type what this image says.")
"""The same question in two wordings; training never saw the second."""
MAX_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Question:
    """One question about one picture."""

    picture: Path
    text: str


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``demo``."""
    parser = subparsers.add_parser(
        "demo",
        help="a small model reads a picture that it has never seen",
        description=(
            "Read a picture with the small model that comes with the package, twice: the second "
            "question about the same picture needs no second run of the encoder. It has learnt printed "
            "lines of at most 24 characters without accents, and simple shapes."
        ),
    )
    parser.add_argument("--image", metavar="FILE", type=Path, help="a picture of your own: PNG or JPEG")
    parser.add_argument("--question", metavar="TEXT", action="append", help="what to ask; may be repeated")
    parser.add_argument("--model", metavar="FOLDER", type=Path, default=READER, help=argparse.SUPPRESS)
    parser.set_defaults(run=run_demo)


def run_demo(arguments: argparse.Namespace) -> int:
    """Ask each question, show the answers as they come, then the engine's own counters."""
    picture = own_picture(arguments.image) if arguments.image else demo_picture()
    weights = model_file(arguments.model)
    questions = [Question(picture, text) for text in arguments.question or QUESTIONS]
    print(f"model    {short(weights.parent)} ({weights.stat().st_size / 1e6:.1f} MB)")
    show_picture(picture)
    with notice("loading ..."):
        from mmcore import LLM  # here: neither `mmcore --help` nor a wrong path shall wait for torch

        llm = LLM(arguments.model)
    with llm:
        for question in questions:
            tell(ask(llm, question))
        counters(llm, len(questions))
    return 0


def own_picture(path: Path) -> Path:
    """The file, a leading ``~`` resolved. Raises `MediaFileError` where there is none."""
    from mmcore.errors import MediaFileError

    picture = path.expanduser()
    if not picture.is_file():
        raise MediaFileError(f"there is no such file: {str(path)!r}")
    return picture


def demo_picture() -> Path:
    """The first of the pictures in the package. Raises `CheckpointError` where there is none."""
    from mmcore.errors import CheckpointError

    for picture in sorted(PICTURES.glob("*.png")):
        return picture
    raise CheckpointError(f"no picture in {PICTURES}; bring one: mmcore demo --image FILE")


def model_file(folder: Path) -> Path:
    """The weights in ``folder``. Raises `CheckpointError` where there are none."""
    from mmcore.errors import CheckpointError

    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise CheckpointError(f"no model.safetensors in {folder}; reinstall mmcore-plugin-qwen2vl")
    return weights


def show_picture(picture: Path) -> None:
    """Its path and size; in a terminal with colours, the picture itself."""
    from mmcore_qwen2vl.terminal import draw, has_colours, read_size

    size = read_size(picture)
    print(f"picture  {short(picture)}" + (f" ({size[0]} x {size[1]})" if size else ""))
    if size and has_colours(sys.stdout):
        print(draw(picture))


def short(path: Path) -> Path:
    """Seen from where the command was given, if it lies below."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def ask(llm: LLM, question: Question) -> RequestOutput:
    """Print the answer as it grows, and give its last state."""
    print(f"\nquestion {question.text}\nanswer   ", end="", flush=True)
    content = [{"type": "image", "image": question.picture}, {"type": "text", "text": question.text}]
    shown = 0
    try:
        for output in llm.chat_async([{"role": "user", "content": content}], _greedy(), streaming=True):
            print(output.text[shown:], end="", flush=True)
            shown = len(output.text)
    finally:
        print(flush=True)  # an error starts a line of its own
    return output


def tell(output: RequestOutput) -> None:
    """What one answer cost, by its own record."""
    times = output.timings
    encoded = "the encoder ran" if output.encoded_items else "the encoder did not run: its rows were kept"
    print(
        f"         {len(output.token_ids)} tokens in {times.finished - times.arrived:.2f} s; {encoded}\n"
        f"         {output.cached_tokens} of {len(output.prompt_token_ids)} prompt tokens came from the cache"
    )


def counters(llm: LLM, questions: int) -> None:
    """The engine's counters since it started."""
    counted = llm.stats.scheduler
    print(
        f"\nengine   {several(questions, 'question')}, {several(counted.encoder_misses, 'encoder run')}, "
        f"{counted.prefix_hit_tokens} tokens not computed again, {counted.steps} steps"
    )


def several(count: int, noun: str) -> str:
    """``1 step``, ``2 steps``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _greedy() -> SamplingParams:
    from mmcore import SamplingParams

    return SamplingParams(max_tokens=MAX_TOKENS, temperature=0.0)
