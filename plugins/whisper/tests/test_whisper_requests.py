"""What a request may bring and ask, and what is refused, through `mmcore.LLM`."""

from __future__ import annotations

import base64
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmcore import SamplingParams, TextPrompt, TokensPrompt
from mmcore.errors import (
    ContextLengthError,
    MediaError,
    MediaLimitError,
    PlaceholderMismatchError,
    PromptError,
    UnsupportedOptionError,
)

RATE = 16_000
START, NONE = "<|startoftranscript|>", "<|notimestamps|>"
SHORT = SamplingParams(max_tokens=12)


def noise(samples: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(samples) * 0.3).astype(np.float32)


def ask(samples: np.ndarray, prompt: str = "", **options: str) -> TextPrompt:
    return TextPrompt(prompt=prompt, multi_modal_data={"audio": [(samples, RATE)]}, decoder_options=options)


def test_the_answer_names_language_and_task(llm_of: Any) -> None:
    prompt = ask(noise(100), language="french", task="translate")
    output = llm_of("multilingual").generate(prompt, SHORT, use_tqdm=False)
    fields = output.outputs[0].fields
    assert (fields["language"], fields["task"]) == ("fr", "translate")
    assert "<|" not in output.text


def test_an_answer_may_fill_the_context(llm_of: Any, tiny_of: Any) -> None:
    output = llm_of("multilingual").generate(ask(noise(9000)), SamplingParams(ignore_eos=True))
    limit = tiny_of("multilingual").adapter.decoder.max_length
    assert len(output.prompt_token_ids) + len(output.token_ids) == limit
    assert output.outputs[0].finish_reason == "length"


def test_chat_takes_one_recording(llm_of: Any) -> None:
    llm, samples = llm_of("english"), noise(9000)
    part = {"type": "audio", "audio": (samples, RATE)}
    output = llm.chat([{"role": "user", "content": [part]}], SHORT)
    assert output.token_ids == llm.generate(ask(samples), SHORT, use_tqdm=False).token_ids
    with pytest.raises(PromptError, match="takes no instructions"):
        llm.chat([{"role": "user", "content": [part, {"type": "text", "text": "Write it down"}]}])


def test_every_route_of_a_recording_gives_the_same_tokens(llm_of: Any, tmp_path: Path) -> None:
    llm, rng = llm_of("multilingual"), np.random.default_rng(11)
    samples = rng.integers(-9000, 9000, 8000).astype("<i2")
    file = tmp_path / "speech.wav"
    with wave.open(str(file), "wb") as out:
        out.setparams((1, 2, RATE, len(samples), "NONE", "none"))
        out.writeframes(samples.tobytes())
    routes: list[Any] = [str(file), file, file.read_bytes(), (samples.astype(np.float32) / 32768, RATE)]
    prompts = [TextPrompt(prompt="", multi_modal_data={"audio": route}) for route in routes]
    outputs = llm.generate(prompts, SHORT, use_tqdm=False)
    encoded = {"data": base64.b64encode(file.read_bytes()).decode(), "format": "wav"}
    message = {"role": "user", "content": [{"type": "input_audio", "input_audio": encoded}]}
    outputs.append(llm.chat([message], SHORT))
    assert len({output.token_ids for output in outputs}) == 1


def test_a_decoder_prompt_may_be_token_ids(llm_of: Any, tiny_of: Any) -> None:
    samples = noise(9000)
    options = {"language": "ja", "task": "translate"}
    ids = tiny_of("multilingual").adapter.decoding.prefix(options)
    tokens = TokensPrompt(prompt_token_ids=ids, multi_modal_data={"audio": (samples, RATE)})
    outputs = llm_of("multilingual").generate([tokens, ask(samples, **options)], SHORT, use_tqdm=False)
    assert outputs[0].token_ids == outputs[1].token_ids


def test_a_decoder_prompt_that_fills_the_context_is_refused(llm_of: Any) -> None:
    prompt = f"<|startofprev|>{' so much' * 20}{START}<|en|><|transcribe|>{NONE}"
    with pytest.raises(ContextLengthError, match="64"):
        llm_of("multilingual").generate(ask(noise(100), prompt), use_tqdm=False)


def test_processor_options_are_refused_by_name(llm_of: Any) -> None:
    prompt = TextPrompt(
        prompt="",
        multi_modal_data={"audio": (np.zeros(100, np.float32), RATE)},
        mm_processor_kwargs={"language": "de"},
    )
    with pytest.raises(UnsupportedOptionError, match="decoder_options"):
        llm_of("multilingual").generate(prompt, use_tqdm=False)


@pytest.mark.parametrize(
    ("audio", "error", "words"),
    [
        ([(np.zeros(0, np.float32), RATE)], MediaError, "empty|no samples|min_samples"),
        ([(np.full(9, np.nan, np.float32), RATE)], MediaError, "finite|NaN"),
        ([], PlaceholderMismatchError, "exactly one"),
        ([(np.zeros(9, np.float32), RATE)] * 2, MediaLimitError, "max_items 1"),
    ],
)
def test_bad_sound_fails_alone(llm_of: Any, audio: list[Any], error: type[Exception], words: str) -> None:
    llm, good = llm_of("multilingual"), ask(noise(9000), language="de")
    alone = llm.generate(good, SHORT, use_tqdm=False)
    bad = TextPrompt(prompt="", multi_modal_data={"audio": audio})
    with pytest.raises(error, match=words):
        llm.generate(bad, use_tqdm=False)
    outputs = llm.generate([good, bad], SHORT, use_tqdm=False)
    assert outputs[0].token_ids == alone.token_ids
    assert isinstance(outputs[1].error, error)
