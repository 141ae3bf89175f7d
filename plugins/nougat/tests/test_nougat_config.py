"""Configs of the published checkpoints, as they are on the hub, and those that are refused."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from mmcore_nougat.adapter import NougatAdapter
from mmcore_nougat.conformance import PUBLISHED, published_files
from mmcore_nougat.testing import write_tiny_checkpoint
from safetensors.torch import load_file, save_file

from mmcore.adapter import Adapter
from mmcore.errors import CheckpointError, MMCoreError, WeightError
from mmcore.inputs.checkpoint import Checkpoint
from mmcore.model.weights import build_model, load_weights

MILLIONS = {"nougat-base": 349, "nougat-small": 247, "donut-base": 202}
"""Parameters, as the hub shows them."""
ROWS = {"nougat-base": 588, "donut-base": 4800, "donut-base-finetuned-cord-v2": 1200}


class NoTokens:
    def token_id(self, token: str) -> int | None:
        return None


@dataclass(frozen=True)
class Files:
    """A checkpoint of which only small files are known."""

    files: Mapping[str, Any]
    tensor_names: frozenset[str] = frozenset()
    tokenizer: NoTokens = field(default_factory=NoTokens)

    def json(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.files.get(name, {})
        return found


def adapter_of(config: Mapping[str, Any], **settings: Any) -> Adapter:
    files = published_files(PUBLISHED["nougat-base"] if "encoder" not in config else config)
    changed = {"preprocessor_config.json": {**files["preprocessor_config.json"], **settings}}
    return NougatAdapter.from_config(config, Files(changed))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configs_have_the_reference_s_parameters(name: str) -> None:
    adapter = adapter_of(PUBLISHED[name])
    config = transformers.VisionEncoderDecoderConfig(**deepcopy(PUBLISHED[name]))
    with torch.device("meta"):
        reference: Any = transformers.VisionEncoderDecoderModel(config)
    model = build_model(adapter, torch.bfloat16, torch.device("meta"))
    found, wanted = (sum(p.numel() for p in one.parameters()) for one in (model, reference))
    assert found == wanted
    assert round(found / 1e6) == MILLIONS.get(name, round(wanted / 1e6))


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_a_published_page(name: str) -> None:
    inputs: Any = adapter_of(PUBLISHED[name]).inputs
    assert (inputs.rows, inputs.row_width) == (ROWS[name], 1024)


def test_papers_are_cropped_and_forms_are_not() -> None:
    papers, forms = (adapter_of(PUBLISHED[name]).inputs for name in ("nougat-base", "donut-base"))
    assert (papers.crops, papers.height, papers.width) == (True, 896, 672)  # type: ignore[attr-defined]
    assert (forms.crops, forms.height, forms.width) == (False, 2560, 1920)  # type: ignore[attr-defined]


def test_an_answer_begins_as_the_checkpoint_says() -> None:
    def prefix(**more: Any) -> tuple[int, ...]:
        return adapter_of({**PUBLISHED["donut-base"], **more}).decoding.prefix({})

    assert (prefix(decoder_start_token_id=57_579), prefix()) == ((57_579,), (0,))


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("encoder", "model_type", "vit"),
        ("encoder", "use_absolute_embeddings", True),
        ("encoder", "window_size", 40),
        ("encoder", "num_heads", [3, 8, 16, 32]),
        ("encoder", "num_heads", [4, 8]),
        ("encoder", "depths", None),
        ("decoder", "model_type", "trocr"),
        ("decoder", "d_model", 0),
        ("decoder", "activation_function", "mish"),
        ("decoder", "cross_attention_hidden_size", 512),
    ],
)
def test_other_configs_are_refused(part: str, field: str, value: Any) -> None:
    config = PUBLISHED["nougat-base"]
    with pytest.raises(MMCoreError, match=r"config\.json|checkpoint's files"):
        adapter_of({**config, part: {**config[part], field: value}})


@pytest.mark.parametrize(
    "settings",
    [
        {"image_processor_type": "ViTImageProcessor"},
        {"image_processor_type": None},
        {"do_pad": False},
        {"rescale_factor": 1.0},
        {"resample": 1},
        {"size": {"height": 100, "width": 100}},
        {"size": None},
    ],
)
def test_other_image_processors_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(MMCoreError, match=r"config\.json|checkpoint's files"):
        adapter_of(PUBLISHED["nougat-base"], **settings)


def test_a_config_without_encoder_is_refused() -> None:
    with pytest.raises(CheckpointError, match="encoder"):
        adapter_of({"decoder": PUBLISHED["nougat-base"]["decoder"]})


HEAD, TABLE = "decoder.lm_head.weight", "decoder.model.decoder.embed_tokens.weight"


@pytest.mark.parametrize("kept", [{TABLE}, {HEAD}, {TABLE, HEAD}])
def test_of_a_tied_pair_writers_keep_either_or_both(tmp_path: Path, kept: set[str]) -> None:
    file = write_tiny_checkpoint(tmp_path, "donut") / "model.safetensors"
    tensors = load_file(file)
    table = tensors.pop(TABLE)
    save_file({**tensors, **{name: table.clone() for name in kept}}, file)
    checkpoint = Checkpoint(tmp_path)
    adapter = NougatAdapter.from_config(checkpoint.config, checkpoint)
    model = build_model(adapter, torch.float32, torch.device("cpu"))
    load_weights(model, adapter, checkpoint.weight_files())
    assert torch.equal(model.decoder.embedding.weight, table)


def test_a_head_that_is_no_repetition_of_its_table_is_told(tmp_path: Path) -> None:
    file = write_tiny_checkpoint(tmp_path, "donut") / "model.safetensors"
    tensors = load_file(file)
    save_file({**tensors, HEAD: tensors[TABLE] + 1}, file)
    checkpoint = Checkpoint(tmp_path)
    adapter = NougatAdapter.from_config(checkpoint.config, checkpoint)
    model = build_model(adapter, torch.float32, torch.device("cpu"))
    with pytest.raises(WeightError, match="lm_head"):
        load_weights(model, adapter, checkpoint.weight_files())
