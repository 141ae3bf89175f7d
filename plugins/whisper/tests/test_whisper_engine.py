"""Whole answers of `mmcore.LLM` against transformers, greedy, in float32."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from transformers import WhisperFeatureExtractor

from mmcore import LLM, RequestOutput, SamplingParams, TextPrompt

RATE = 16_000
START, NONE = "<|startoftranscript|>", "<|notimestamps|>"
LANGUAGES = ("en", "de", "ja", "haw", "su")


@dataclass(frozen=True)
class Case:
    """One request: a recording and what is asked of it."""

    samples: np.ndarray
    prompt: str
    options: dict[str, str] = field(default_factory=dict)
    tokens: int = 12

    @property
    def text_prompt(self) -> TextPrompt:
        return TextPrompt(
            prompt=self.prompt,
            multi_modal_data={"audio": [(self.samples, RATE)]},
            decoder_options=self.options,
        )

    @property
    def sampling(self) -> SamplingParams:
        return SamplingParams(max_tokens=self.tokens, temperature=0.0)


def make_case(variant: str, seed: int) -> Case:
    """Silence, noise, tones or bursts of any length up to the window; options or a decoder prompt."""
    rng = np.random.default_rng(seed)
    window = RATE * (2 if variant == "large" else 1)
    length = int(rng.choice(np.array([1, 200, window // 3, window - 1, window, rng.integers(1, window)])))
    time = np.arange(length) / RATE
    shapes: list[np.ndarray] = [
        np.zeros(length),
        rng.standard_normal(length) * rng.choice([1e-3, 0.1, 0.5]),
        np.sin(2 * np.pi * rng.uniform(80, 4000) * time) * 0.5,
        rng.standard_normal(length) * (np.sin(2 * np.pi * 3 * time) > 0) * 0.3,
    ]
    samples = shapes[seed % len(shapes)].astype(np.float32)
    prompt, options = _ask(variant, rng)
    return Case(samples, prompt, options, tokens=int(rng.integers(1, 20)))


def _ask(variant: str, rng: np.random.Generator) -> tuple[str, dict[str, str]]:
    if variant == "english":
        return str(rng.choice(["", START + NONE, f"<|startofprev|> Hm.{START}{NONE}"])), {}
    language, task = str(rng.choice(LANGUAGES)), str(rng.choice(["transcribe", "translate"]))
    full = f"{START}<|{language}|><|{task}|>{NONE}"
    prompt = str(rng.choice(["", START, full, f"<|startofprev|> Ever tried{full}", full.removesuffix(NONE)]))
    return prompt, {"language": language, "task": task} if prompt in ("", START) else {}


# ------------------------------------------------------------------ the reference


@torch.no_grad()
def reference_answer(tiny: Any, case: Case) -> tuple[list[int], torch.Tensor]:
    """Greedy ids and the logits they were chosen from [tokens, vocabulary], without any cache."""
    extractor = WhisperFeatureExtractor.from_pretrained(tiny.folder)
    features = extractor(case.samples, sampling_rate=RATE, return_tensors="pt").input_features
    encoded = tiny.reference.model.encoder(features)
    prompt = decoder_prompt(tiny, case)
    ids, rows = list(prompt), []
    end = tiny.reference.config.eos_token_id
    for _ in range(min(case.tokens, tiny.reference.config.max_target_positions - len(prompt))):
        logits = tiny.reference(encoder_outputs=encoded, decoder_input_ids=torch.tensor([ids])).logits[0, -1]
        rows.append(logits.clone())
        generation = tiny.reference.generation_config
        logits[generation.suppress_tokens] = -torch.inf
        if len(ids) == len(prompt):
            logits[generation.begin_suppress_tokens] = -torch.inf
        ids.append(int(logits.argmax()))
        if ids[-1] == end:
            break
    return ids[len(prompt) :], torch.stack(rows)


def decoder_prompt(tiny: Any, case: Case) -> list[int]:
    """From the reference's own tables where the case gives options, else by the raw tokenizer."""
    config, generation = tiny.reference.config, tiny.reference.generation_config
    if case.prompt not in ("", START):
        return list(tiny.checkpoint.tokenizer.encode(case.prompt, special_tokens=True))
    start, none = config.decoder_start_token_id, generation.no_timestamps_token_id
    if not case.options:
        return [start, none]
    language, task = case.options["language"], case.options["task"]
    return [start, generation.lang_to_id[f"<|{language}|>"], generation.task_to_id[task], none]


# ------------------------------------------------------------------ the engine


def answer_with_logits(llm: LLM, case: Case) -> tuple[RequestOutput, torch.Tensor]:
    """One request alone, and the logits each token was chosen from."""
    decoder: Any = llm._engine._runner._model.decoder
    rows: list[torch.Tensor] = []
    head = decoder.logits

    def spy(hidden: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = head(hidden)
        rows.append(logits.clone())
        return logits

    decoder.logits = spy
    try:
        output = llm.generate(case.text_prompt, case.sampling, use_tqdm=False)
    finally:
        del decoder.logits
    return output, torch.cat(rows)


VARIANTS = ("multilingual", "english", "large")
CASES = 24
"""A variant."""


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_batch_gives_the_reference_tokens(tiny_of: Any, llm_of: Any, variant: str) -> None:
    cases = [make_case(variant, seed) for seed in range(CASES)]
    outputs = llm_of(variant).generate(
        [case.text_prompt for case in cases], [case.sampling for case in cases], use_tqdm=False
    )
    for case, output in zip(cases, outputs, strict=True):
        expected, _ = reference_answer(tiny_of(variant), case)
        assert list(output.prompt_token_ids) == decoder_prompt(tiny_of(variant), case)
        assert list(output.token_ids) == expected


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("seed", range(100, 100 + CASES))
def test_logits_equal_the_reference(tiny_of: Any, llm_of: Any, variant: str, seed: int) -> None:
    case = make_case(variant, seed)
    output, logits = answer_with_logits(llm_of(variant), case)
    ids, expected = reference_answer(tiny_of(variant), case)
    assert list(output.token_ids) == ids
    assert ((logits - expected).abs().amax(-1) / expected.abs().amax(-1)).max() <= 1e-4


def test_answers_depend_on_sound_language_and_task(llm_of: Any) -> None:
    """Else equal tokens would say little."""
    cases = [make_case("multilingual", 1), make_case("multilingual", 2)]
    asked = [
        Case(case.samples, "", {"language": language, "task": task}, tokens=20)
        for case in cases
        for language in ("en", "de")
        for task in ("transcribe", "translate")
    ]
    outputs = llm_of("multilingual").generate(
        [case.text_prompt for case in asked], asked[0].sampling, use_tqdm=False
    )
    assert len({output.token_ids for output in outputs}) >= 6


def test_a_recording_is_encoded_once_for_all_languages_and_tasks(llm_of: Any) -> None:
    """Whoever asks again runs no encoder and takes no cross blocks."""
    samples = np.random.default_rng(5).standard_normal(9000).astype(np.float32)
    llm = llm_of("multilingual")
    before = llm.stats.scheduler
    encoded, blocks = [], []
    for options in ({}, {"language": "de"}, {"language": "de", "task": "translate"}, {}):
        output = llm.generate(Case(samples, "", options).text_prompt, SamplingParams(max_tokens=4))
        encoded.append(output.encoded_items)
        blocks.append(llm.stats.scheduler.cross_blocks)
    assert encoded == [1, 0, 0, 0]
    assert before.cross_blocks < blocks[0] == blocks[-1]
    assert llm.stats.scheduler.cross_hits - before.cross_hits == 3
    assert llm.stats.scheduler.encoder_misses - before.encoder_misses == 1
    assert llm.stats.scheduler.encoder_hits == before.encoder_hits


def test_requests_of_one_batch_share_their_cross_states(llm_of: Any) -> None:
    samples = np.random.default_rng(6).standard_normal(9000).astype(np.float32)
    llm = llm_of("multilingual")
    before = llm.stats.scheduler
    asked = [Case(samples, "", {"language": language}) for language in LANGUAGES]
    prompts = [case.text_prompt for case in asked]
    outputs = llm.generate(prompts, SamplingParams(max_tokens=8), use_tqdm=False)
    assert sum(output.encoded_items for output in outputs) == 1
    assert llm.stats.scheduler.cross_hits - before.cross_hits == len(LANGUAGES) - 1
    alone = [llm.generate(prompt, SamplingParams(max_tokens=8), use_tqdm=False) for prompt in prompts]
    assert [output.token_ids for output in outputs] == [output.token_ids for output in alone]
