"""Two conversations at once, each printed as it grows.

python examples/stream_answers.py [PICTURE] [--model FOLDER]
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from mmcore import LLM, SamplingParams

QUESTIONS = ("What does the picture say?", "Read this picture.")


async def answer(llm: LLM, picture: Path, question: str) -> None:
    content = [{"type": "image", "image": picture}, {"type": "text", "text": question}]
    messages = [{"role": "user", "content": content}]
    async for output in llm.chat_async(messages, SamplingParams(max_tokens=32), streaming=True):
        print(f"{question:<28} {output.text}")


async def answer_all(llm: LLM, picture: Path) -> None:
    await asyncio.gather(*(answer(llm, picture, question) for question in QUESTIONS))


def main(argv: Sequence[str] | None = None) -> None:
    package = Path(str(files("mmcore_qwen2vl")))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("picture", nargs="?", type=Path, default=package / "demo" / "sign.png")
    parser.add_argument("--model", type=Path, default=package / "reader")
    options = parser.parse_args(argv)
    with LLM(options.model) as llm:
        asyncio.run(answer_all(llm, options.picture))


if __name__ == "__main__":
    main()
