"""Write down recordings of any length, all at once, each segment printed as soon as it is known.

python examples/transcribe.py RECORDING... --model openai/whisper-base [--language de] [--task translate]
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from mmcore import LLM


async def transcribe(llm: LLM, recording: Path, language: str | None, task: str) -> None:
    printed = 0
    async for transcript in llm.transcribe_async(recording, language, task, streaming=True):
        for segment in transcript.segments[printed:]:
            print(f"{recording.name} {segment.start:8.2f} {segment.end:8.2f}  {segment.text}")
        printed = len(transcript.segments)
    print(f"{recording.name}: {transcript.duration:.1f} s, language {transcript.language}")


async def transcribe_all(llm: LLM, options: argparse.Namespace) -> None:
    started = (transcribe(llm, path, options.language, options.task) for path in options.recordings)
    await asyncio.gather(*started)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recordings", nargs="+", type=Path, metavar="RECORDING")
    parser.add_argument("--model", required=True, help="a checkpoint folder, or a hub name")
    parser.add_argument("--language", help="a code or a name (default: what is heard)")
    parser.add_argument("--task", choices=["transcribe", "translate"], default="transcribe")
    options = parser.parse_args(argv)
    with LLM(options.model) as llm:
        asyncio.run(transcribe_all(llm, options))


if __name__ == "__main__":
    main()
