"""What the tests of the engine ask: prompts about shared media, prepared once."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image

from mmcore.inputs.pipeline import InputPipeline
from mmcore.request import PreparedRequest
from mmcore.sampling_params import SamplingParams


def picture(seed: int, width: int, height: int) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def sound(seed: int, seconds: float) -> tuple[np.ndarray, int]:
    rng = np.random.default_rng(seed)
    time = np.arange(int(seconds * 16_000)) / 16_000
    tones = sum(np.sin(2 * np.pi * f * time) for f in rng.uniform(100, 4000, 4))
    return (0.2 * tones + 0.01 * rng.standard_normal(len(time))).astype(np.float32), 16_000


OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"repetition_penalty": 1.4, "logprobs": 2},
    {"frequency_penalty": 0.8, "presence_penalty": 0.3, "min_p": 0.05},
    {"logit_bias": {70: 2.0, 71: -50.0}, "bad_token_ids": ((65,), (73, 183), (80, 81, 82))},
    {"repetition_penalty": 1.2, "bad_token_ids": (90,)},
)


def _params(n: int) -> SamplingParams:
    """Every third request is sampled, each with its own seed."""
    temperature = 0.9 if n % 3 == 2 else 0.0
    return SamplingParams(
        max_tokens=4 + n % 5,
        ignore_eos=True,
        temperature=temperature,
        top_k=40 if n % 2 else None,
        seed=n,
        **OPTIONS[n % len(OPTIONS)],
    )


SEARCHES: tuple[dict[str, Any], ...] = (
    {"use_beam_search": True, "beam_width": 2, "n": 2, "repetition_penalty": 1.6},
    {
        "use_beam_search": True,
        "beam_width": 3,
        "n": 3,
        "length_penalty": 0.5,
        "frequency_penalty": -0.5,
        "stop_token_ids": (70, 71, 72),
    },
    {"best_of": 3, "n": 2, "temperature": 1.0, "seed": 40},
)
"""Several sequences, of which some are given. Beams that repeat themselves need their own history."""


def searches(pipeline: InputPipeline, prompt: Any) -> list[PreparedRequest]:
    """One prompt, asked for the best of several sequences."""
    return [
        pipeline.prepare(prompt, SamplingParams(max_tokens=6, ignore_eos=True, **options), request_id=f"s{n}")
        for n, options in enumerate(SEARCHES)
    ]


SLOT = "<|vision_start|><|image_pad|><|vision_end|>"


def picture_requests(pipeline: InputPipeline) -> list[PreparedRequest]:
    """Text alone, one and several pictures, pictures shared between prompts, twins of one shape."""
    pictures = [picture(1, 56, 84), picture(2, 84, 84), picture(3, 84, 84), picture(4, 140, 56)]
    asked: list[tuple[str, list[int]]] = [
        ("Hello, who are you?", []),
        ("What is it?", [0]),
        ("What is it?", [1]),
        ("What is it?", [2]),
        ("What is it? Say more.", [1]),
        ("Compare them.", [0, 1]),
        ("Compare them.", [1, 0]),
        ("Compare them.", [0, 2]),
        ("Name all.", [3, 1, 2]),
        ("Hello, who are you? And I?", []),
    ]
    return [
        pipeline.prepare(
            {
                "prompt": "<|im_start|>user\n" + SLOT * len(chosen) + text,
                "multi_modal_data": {"image": [pictures[i] for i in chosen]},
            },
            _params(n),
            request_id=f"r{n}",
        )
        for n, (text, chosen) in enumerate(asked)
    ] + searches(
        pipeline,
        {
            "prompt": "<|im_start|>user\n" + SLOT + "What?",
            "multi_modal_data": {"image": [pictures[0]]},
        },
    )


def video_requests(pipeline: InputPipeline) -> list[PreparedRequest]:
    """Videos of two lengths and rates, shared between prompts, before, behind and without pictures."""
    films = [(np.stack([np.asarray(picture(n, 56, 56)) for n in range(first, first + 4)]), 2.0 * first)
             for first in (1, 2)]  # fmt: skip
    films.append((np.stack([np.asarray(picture(n, 84, 56)) for n in range(20, 25)]), 1.0))
    still, film = SLOT, SLOT.replace("image", "video")
    asked: list[tuple[str, list[int]]] = [
        ("Hello, who are you?", []),
        (film + "What happens?", [0]),
        (film + "What happens?", [1]),
        (film + "What happens? Say more.", [0]),
        (film + film + "Compare them.", [0, 2]),
        (film + film + "Compare them.", [2, 0]),
        (film + still + "Is it in there?", [1]),
        (still + "What is it?" + film + "And this?", [2]),
    ]
    return [
        pipeline.prepare(
            {
                "prompt": "<|im_start|>user\n" + text,
                "multi_modal_data": {
                    "video": [films[i] for i in chosen],
                    "image": [picture(9, 84, 84)] * text.count(still),
                },
            },
            _params(n),
            request_id=f"r{n}",
        )
        for n, (text, chosen) in enumerate(asked)
    ]


def sound_requests(pipeline: InputPipeline) -> list[PreparedRequest]:
    """Two recordings, several tasks and languages about each."""
    clips = [sound(1, 0.7), sound(2, 1.0)]
    tasks = [("en", "transcribe"), ("de", "transcribe"), ("de", "translate")]
    return [
        pipeline.prepare(
            {
                "prompt": "",
                "multi_modal_data": {"audio": [clips[n % 2]]},
                "decoder_options": {"language": tasks[n % 3][0], "task": tasks[n % 3][1]},
            },
            _params(n),
            request_id=f"r{n}",
        )
        for n in range(8)
    ] + searches(
        pipeline,
        {
            "prompt": "",
            "multi_modal_data": {"audio": [clips[0]]},
            "decoder_options": {"language": "en", "task": "transcribe"},
        },
    )


def tile_requests(pipeline: InputPipeline) -> list[PreparedRequest]:
    """A picture alone is many ranges with tokens between them, one of several is one range."""
    pictures = [picture(1, 56, 84), picture(2, 40, 40), picture(3, 40, 40), picture(4, 20, 50)]
    asked: list[tuple[str, list[int]]] = [
        ("Hello?", []),
        ("What?", [0]),
        ("What?", [1]),
        ("What?", [2]),
        ("What? More.", [1]),
        ("Compare.", [0, 1]),
        ("Compare.", [1, 0]),
        ("Name all.", [3, 1, 2]),
    ]
    return [
        pipeline.prepare(
            {
                "prompt": "<image>" * len(chosen) + text,
                "multi_modal_data": {"image": [pictures[i] for i in chosen]},
            },
            _params(n),
            request_id=f"r{n}",
        )
        for n, (text, chosen) in enumerate(asked)
    ]


def caption_requests(pipeline: InputPipeline) -> list[PreparedRequest]:
    """A context stage's: captions, questions about shared pictures, text alone."""
    asked: list[tuple[str, int | None]] = [
        ("", 1),
        ("Question: what is it? Answer:", 1),
        ("", 2),
        ("Question: what is it? Answer:", 2),
        ("a photo of", 3),
        ("Who are you?", None),
        ("Question: where? Answer:", 1),
        ("a photo of", 2),
    ]
    pictures = {seed: picture(seed, 40 + 9 * seed, 60) for seed in (1, 2, 3)}
    return [
        pipeline.prepare(
            {"prompt": text, "multi_modal_data": {} if seed is None else {"image": pictures[seed]}},
            _params(n),
            request_id=f"r{n}",
        )
        for n, (text, seed) in enumerate(asked)
    ]


def page_requests(pipeline: InputPipeline) -> list[PreparedRequest]:
    """Pages, their answers' beginnings written out; some share a page, some a beginning."""
    begun = [("", 1), ("# Title", 1), ("", 2), ("# Title", 2), ("# Tip", 3), ("", 3), ("a b c d e", 1)]
    pages = {seed: picture(seed, 40 + 9 * seed, 60) for seed in (1, 2, 3)}
    return [
        pipeline.prepare(
            {"prompt": text and f"<s>{text}", "multi_modal_data": {"image": pages[seed]}},
            _params(n),
            request_id=f"r{n}",
        )
        for n, (text, seed) in enumerate(begun)
    ]
