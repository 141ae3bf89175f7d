"""Several prompts at once, over few pictures: the same picture is encoded once.

python examples/read_pictures.py [PICTURE ...] [--model FOLDER]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from mmcore import LLM, SamplingParams, TextPrompt

QUESTIONS = ("What does the picture say?", "Read this picture.", "Transcribe the text.")


def main(argv: Sequence[str] | None = None) -> None:
    package = Path(str(files("mmcore_qwen2vl")))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pictures", nargs="*", type=Path, default=sorted((package / "demo").glob("*.png")))
    parser.add_argument("--model", type=Path, default=package / "reader")
    options = parser.parse_args(argv)

    asked = [(picture, question) for picture in options.pictures for question in QUESTIONS]
    prompts = [
        TextPrompt(
            prompt=question,
            multi_modal_data={"image": [picture]},
            multi_modal_uuids={"image": [picture.name]},
        )
        for picture, question in asked
    ]
    with LLM(options.model) as llm:
        outputs = llm.generate(prompts, SamplingParams(max_tokens=32))
        for (picture, question), output in zip(asked, outputs, strict=True):
            print(f"{picture.name:<24} {question:<28} {output.text}")
        print(f"{len(prompts)} prompts, {llm.stats.scheduler.encoder_misses} encoder runs")


if __name__ == "__main__":
    main()
