"""Half precision on a GPU: at most twice as far from float32 as the reference in the same dtype."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mmcore_whisper.testing import write_tiny_checkpoint
from torch import Tensor
from transformers import WhisperForConditionalGeneration

from mmcore import LLM, SamplingParams, TextPrompt
from mmcore.config import Dtype

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

RATE = 16_000
CASES = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Heads of 64, as in every published size; a window of 2 s."""
    return write_tiny_checkpoint(
        tmp_path_factory.mktemp("gpu"), width=256, heads=4, intermediate=512, rows=100
    )


def recordings() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [(rng.standard_normal(1500 * n) * 0.1).astype(np.float32) for n in range(1, 1 + CASES)]


class Spy:
    """What an engine's tower and head gave, in order, as float32 on the host."""

    def __init__(self, llm: LLM) -> None:
        self.features: list[Tensor] = []
        self.rows: list[Tensor] = []
        self.logits: list[Tensor] = []
        model: Any = llm._engine._runner._model
        model.encoder.register_forward_hook(self._encoded, with_kwargs=True)
        self._head = model.decoder.logits
        model.decoder.logits = self._scored

    def _encoded(self, module: Any, args: Any, kwargs: Any, rows: Tensor) -> None:
        self.features.append((args[0] if args else kwargs["features"]).float().cpu())
        self.rows.append(rows.float().cpu())

    def _scored(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self._head(hidden)
        self.logits.append(logits.cpu())
        return logits


@torch.no_grad()
def reference(folder: Path, features: Tensor, prompt: list[int], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Encoder rows and the logits after the prompt, in ``dtype`` on the GPU."""
    model: Any = WhisperForConditionalGeneration.from_pretrained(folder, dtype=dtype)
    model.eval().cuda()
    output = model(
        input_features=features.to("cuda", dtype), decoder_input_ids=torch.tensor([prompt], device="cuda")
    )
    return output.encoder_last_hidden_state[0].float().cpu(), output.logits[0, -1].float().cpu()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rows_and_first_logits_in_half_precision(folder: Path, dtype: Dtype) -> None:
    exact: list[Tensor] = []
    theirs: list[Tensor] = []
    ours: list[Tensor] = []
    with LLM(folder, device="cuda", dtype=dtype, max_batch_size=16) as llm:
        spy = Spy(llm)
        for samples in recordings():
            prompt = TextPrompt(prompt="", multi_modal_data={"audio": (samples, RATE)})
            output = llm.generate(prompt, SamplingParams(max_tokens=1), use_tqdm=False)
            features, ids = spy.features.pop(), list(output.prompt_token_ids)
            ours += [spy.rows.pop().flatten(), spy.logits.pop().flatten()]
            exact += reference(folder, features, ids, torch.float32)
            theirs += reference(folder, features, ids, getattr(torch, dtype))
    for kind in (0, 1):
        wanted = torch.cat([x.flatten() for x in exact[kind::2]])
        mine, other = (torch.cat([x.flatten() for x in found[kind::2]]) for found in (ours, theirs))
        assert (mine - wanted).square().mean() <= 4 * (other - wanted).square().mean()
        assert (mine - wanted).abs().max() <= 2 * (other - wanted).abs().max() + 1e-3 * wanted.abs().max()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_batch_on_the_gpu_gives_what_each_request_gives_alone(folder: Path, dtype: Dtype) -> None:
    """Every request ends with finite logits; in float32 the tokens are those of the CPU."""
    prompts = [TextPrompt(prompt="", multi_modal_data={"audio": (s, RATE)}) for s in recordings()]
    sampling = SamplingParams(max_tokens=16)
    with LLM(folder, device="cuda", dtype=dtype, max_batch_size=16) as llm:
        outputs = llm.generate(prompts, sampling, use_tqdm=False)
    assert all(output.error is None and output.token_ids for output in outputs)
    if dtype == "float32":
        with LLM(folder, device="cpu", dtype=dtype) as llm:
            expected = llm.generate(prompts, sampling, use_tqdm=False)
        assert [o.token_ids for o in outputs] == [o.token_ids for o in expected]
