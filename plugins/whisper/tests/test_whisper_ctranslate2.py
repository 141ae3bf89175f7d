"""The CTranslate2 converter on a small model file written here, byte by byte."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mmcore_whisper.ctranslate2 import convert, read_variables
from mmcore_whisper.testing import tiny_tokenizer
from safetensors.numpy import load_file

from mmcore.errors import CheckpointError

WIDTH, INNER, MELS, ROWS, LENGTH, HEADS = 16, 24, 80, 50, 20, 2
_CODES = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4}


def string(text: str) -> bytes:
    return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"


def model_bin(
    variables: Mapping[str, np.ndarray], version: int = 6, specification: str = "WhisperSpec"
) -> bytes:
    parts = [struct.pack("<I", version), string(specification), struct.pack("<II", 3, len(variables))]
    for name, value in variables.items():
        shape = b"".join(struct.pack("<I", size) for size in value.shape)
        head = struct.pack("<B", value.ndim) + shape
        parts += [
            string(name),
            head,
            struct.pack("<BI", _CODES[value.dtype.name], value.nbytes),
            value.tobytes(),
        ]
    alias = string("decoder/projection/weight") + string("decoder/embeddings/weight")
    return b"".join([*parts, struct.pack("<I", 1), alias])


def some(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float16)


def linear(name: str, outputs: int, inputs: int) -> dict[str, np.ndarray]:
    return {f"{name}/weight": some(outputs, inputs), f"{name}/bias": some(outputs)}


def norm(name: str) -> dict[str, np.ndarray]:
    return {f"{name}/gamma": some(WIDTH), f"{name}/beta": some(WIDTH)}


def layer(name: str, cross: bool) -> dict[str, np.ndarray]:
    variables = {
        **norm(f"{name}/self_attention/layer_norm"),
        **linear(f"{name}/self_attention/linear_0", 3 * WIDTH, WIDTH),
        **linear(f"{name}/self_attention/linear_1", WIDTH, WIDTH),
        **norm(f"{name}/ffn/layer_norm"),
        **linear(f"{name}/ffn/linear_0", INNER, WIDTH),
        **linear(f"{name}/ffn/linear_1", WIDTH, INNER),
    }
    variables[f"{name}/self_attention/linear_0/bias"][WIDTH : 2 * WIDTH] = 0
    if cross:
        variables |= norm(f"{name}/attention/layer_norm")
        for index, stacked in enumerate((1, 2, 1)):
            variables |= linear(f"{name}/attention/linear_{index}", stacked * WIDTH, WIDTH)
        variables[f"{name}/attention/linear_1/bias"][:WIDTH] = 0
    return variables


def variables_of(vocabulary: int) -> dict[str, np.ndarray]:
    return {
        "decoder/embeddings/weight": some(vocabulary, WIDTH),
        "decoder/position_encodings/encodings": some(LENGTH, WIDTH),
        "decoder/num_heads": np.array(HEADS, np.int16),
        "decoder/pre_norm": np.array(1, np.int8),
        **norm("decoder/layer_norm"),
        **layer("decoder/layer_0", cross=True),
        "encoder/conv1/weight": some(WIDTH, MELS, 3),
        "encoder/conv1/bias": some(WIDTH),
        "encoder/conv2/weight": some(WIDTH, WIDTH, 3),
        "encoder/conv2/bias": some(WIDTH),
        "encoder/position_encodings/encodings": some(ROWS, WIDTH),
        "encoder/num_heads": np.array(HEADS, np.int16),
        **norm("encoder/layer_norm"),
        **layer("encoder/layer_0", cross=False),
    }


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    tokenizer = tiny_tokenizer("english", ROWS)
    vocabulary = 256 + len(tokenizer["added_tokens"])
    (folder / "model.bin").write_bytes(model_bin(variables_of(vocabulary)))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "config.json").write_text(json.dumps({"suppress_ids": [1, 2], "suppress_ids_begin": [220]}))
    return folder


def rewrite(source: Path, edit: Any = None, **header: Any) -> None:
    variables = read_variables(source / "model.bin")
    variables = {name: value.copy() for name, value in variables.items()}
    if edit is not None:
        edit(variables)
    (source / "model.bin").write_bytes(model_bin(variables, **header))


def test_fused_projections_are_parted(source: Path, tmp_path: Path) -> None:
    convert(source, tmp_path / "hub")
    tensors = load_file(tmp_path / "hub" / "model.safetensors")
    before = read_variables(source / "model.bin")
    attention = "model.decoder.layers.0"
    fused = before["decoder/layer_0/self_attention/linear_0/weight"]
    for index, projection in enumerate(("q_proj", "k_proj", "v_proj")):
        part = tensors[f"{attention}.self_attn.{projection}.weight"]
        assert np.array_equal(part, fused[index * WIDTH : (index + 1) * WIDTH])
    stacked = before["decoder/layer_0/attention/linear_1/bias"]
    assert np.array_equal(tensors[f"{attention}.encoder_attn.v_proj.bias"], stacked[WIDTH:])
    assert not [name for name in tensors if name.endswith("k_proj.bias")]
    assert len(tensors) == len(reference_names(tmp_path / "hub"))


def reference_names(folder: Path) -> set[str]:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    model = WhisperForConditionalGeneration(WhisperConfig.from_pretrained(folder))
    return set(model.state_dict()) - {"proj_out.weight"}


def test_the_converted_folder_is_a_whole_checkpoint(source: Path, tmp_path: Path) -> None:
    from transformers import WhisperForConditionalGeneration

    convert(source, tmp_path / "hub")
    assert set(load_file(tmp_path / "hub" / "model.safetensors")) == reference_names(tmp_path / "hub")
    model = WhisperForConditionalGeneration.from_pretrained(tmp_path / "hub")
    assert model.generation_config.suppress_tokens == [1, 2]
    assert (model.config.encoder_ffn_dim, model.config.decoder_attention_heads) == (INNER, HEADS)


@pytest.mark.parametrize(
    ("header", "words"),
    [({"version": 5}, "version 5"), ({"specification": "TransformerSpec"}, "TransformerSpec")],
)
def test_other_models_are_refused(source: Path, header: dict[str, Any], words: str) -> None:
    rewrite(source, **header)
    with pytest.raises(CheckpointError, match=words):
        convert(source, source / "hub")


def _quantise(variables: dict[str, np.ndarray]) -> None:
    name = "encoder/layer_0/ffn/linear_0/weight"
    variables[name] = variables[name].astype(np.int8)


def _give_keys_a_bias(variables: dict[str, np.ndarray]) -> None:
    variables["encoder/layer_0/self_attention/linear_0/bias"][WIDTH] = 1


def _add_a_stranger(variables: dict[str, np.ndarray]) -> None:
    variables["encoder/layer_0/self_attention/linear_7/bias"] = some(3)


def _lose_a_convolution(variables: dict[str, np.ndarray]) -> None:
    del variables["encoder/conv1/weight"]


def _lose_the_heads(variables: dict[str, np.ndarray]) -> None:
    del variables["decoder/num_heads"]


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (_quantise, "quantised"),
        (_give_keys_a_bias, "bias for the keys"),
        (_add_a_stranger, "linear_7"),
        (_lose_a_convolution, r"model.encoder.conv1.weight"),
        (_lose_the_heads, "decoder/num_heads"),
    ],
)
def test_unfit_variables_are_named(source: Path, edit: Any, words: str) -> None:
    rewrite(source, edit)
    with pytest.raises(CheckpointError, match=words):
        convert(source, source / "hub")
    assert not (source / "hub").exists()


@pytest.mark.parametrize("kept", [0, 3, 40, 1000, -1])
def test_a_truncated_file_is_refused(source: Path, kept: int) -> None:
    whole = (source / "model.bin").read_bytes()
    aliases = len(string("decoder/projection/weight") + string("decoder/embeddings/weight")) + 4
    cut = whole[:-aliases][:kept]
    (source / "model.bin").write_bytes(cut)
    with pytest.raises(CheckpointError, match="again"):
        convert(source, source / "hub")
