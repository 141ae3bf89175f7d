"""T5's head goes by the tensors that the file holds, whatever ``tie_word_embeddings`` says."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from mmcore_blip2.conformance import TransformersBlip2
from mmcore_blip2.testing import TOKEN_IDS, Variant, write_tiny_checkpoint
from safetensors.torch import load_file, save_file

from mmcore import LLM, RequestOutput, SamplingParams
from mmcore.errors import WeightError

HEAD = "language_model.lm_head.weight"
TABLE = "language_model.shared.weight"
ANSWER = SamplingParams(max_tokens=6, ignore_eos=True, logprobs=0)


def add(folder: Path, **tensors: torch.Tensor) -> None:
    file = folder / "model.safetensors"
    whole = load_file(file) | {f"language_model.{name}.weight": value for name, value in tensors.items()}
    save_file({name: value.clone() for name, value in whole.items()}, file, {"format": "pt"})


def drop(folder: Path, name: str) -> None:
    file = folder / "model.safetensors"
    whole = load_file(file)
    del whole[name]
    save_file(whole, file, {"format": "pt"})


@pytest.mark.parametrize("says_tied", [True, False])
@pytest.mark.parametrize("has_head", [True, False])
def test_answers_are_the_reference_s(tmp_path: Path, says_tied: bool, has_head: bool) -> None:
    folder = write_tiny_checkpoint(tmp_path, "t5", tied=says_tied)
    table = load_file(folder / "model.safetensors")[TABLE]
    if has_head and says_tied:
        add(folder, lm_head=torch.randn(table.shape, generator=torch.Generator().manual_seed(1)) / 7)
    if not has_head and not says_tied:
        drop(folder, HEAD)
    reference = TransformersBlip2(folder)
    with LLM(folder, dtype="float32", device="cpu") as llm:
        for text in ("Question: how many? Answer:", "abc", "é"):
            output = llm.generate(text, ANSWER, use_tqdm=False)
            assert isinstance(output, RequestOutput)
            ids = [*reference.tokenizer(text, add_special_tokens=False).input_ids, TOKEN_IDS["</s>"]]
            wanted = reference.answered([], ids, output.token_ids).log_softmax(1).max(1)
            assert list(output.token_ids) == wanted.indices.tolist()
            own = [s[t].logprob for s, t in zip(output[0].logprobs or (), output.token_ids, strict=True)]
            torch.testing.assert_close(torch.tensor(own), wanted.values, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("variant", "name", "table"),
    [("opt", "lm_head", "model.decoder.embed_tokens"), ("t5", "decoder.embed_tokens", "shared")],
)
def test_a_table_that_is_stored_again_must_be_the_same(
    tmp_path: Path, variant: Variant, name: str, table: str
) -> None:
    folder = write_tiny_checkpoint(tmp_path, variant)
    same = load_file(folder / "model.safetensors")[f"language_model.{table}.weight"]
    add(folder, **{name: same})
    LLM(folder, dtype="float32", device="cpu").shutdown()
    add(folder, **{name: same + 1})
    with pytest.raises(WeightError, match=rf"{name}.weight' would be left out .*values are not those of"):
        LLM(folder, dtype="float32", device="cpu")
