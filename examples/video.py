"""Questions about videos: how many frames the model sees, and what it answers.

python examples/video.py [VIDEO ...] [--model FOLDER] [--fps 2]

Without a video one is drawn: a picture that moves by. The reader that comes with the plugin has learnt
pictures alone; give a published Qwen2-VL or Qwen2.5-VL checkpoint for real answers.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mmcore import LLM, SamplingParams, TextPrompt


def drawn() -> tuple[np.ndarray, float]:
    """Two seconds, 8 frames a second, in which a picture of the demo moves from right to left."""
    sign = sorted((Path(str(files("mmcore_qwen2vl"))) / "demo").glob("*.png"))[0]
    pixels = np.asarray(Image.open(sign).convert("RGB"))
    return np.stack([np.roll(pixels, -4 * n, axis=1) for n in range(16)]), 8.0


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("videos", nargs="*", type=Path)
    parser.add_argument("--model", type=Path, default=Path(str(files("mmcore_qwen2vl"))) / "reader")
    parser.add_argument("--fps", type=float, default=2.0, help="frames that the model sees a second")
    options = parser.parse_args(argv)

    videos: list[tuple[str, Any]] = [(path.name, path) for path in options.videos] or [("drawn", drawn())]
    with LLM(options.model) as llm:
        for name, video in videos:
            prompt = TextPrompt(
                prompt="What happens?",
                multi_modal_data={"video": [video]},
                mm_processor_kwargs={"fps": options.fps},
            )
            request = llm.preprocess(prompt)
            plan = request.items[0].plan
            print(f"{name}: {len(plan.source.frames)} frames, {plan.rows} tokens")
            print(llm.generate(request, SamplingParams(max_tokens=32)).text)


if __name__ == "__main__":
    main()
