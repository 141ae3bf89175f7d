"""Published configs: what is built of them, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from mmcore_nvila.adapter import NvilaAdapter
from mmcore_nvila.processor import NvilaProcessor
from mmcore_nvila.published import PUBLISHED, published_files
from mmcore_nvila.testing import FOLDERS, VARIANTS, config, write_tiny_checkpoint

from mmcore import LLM
from mmcore.adapter import Adapter
from mmcore.errors import MMCoreError, UnsupportedOptionError
from mmcore.inputs.checkpoint import Checkpoint
from mmcore.model.weights import build_model
from mmcore.request import ItemPlan, MediaInfo, Rows, Tokens
from mmcore.testing.tiny import byte_tokenizer, write_files


def adapter_of(folder: Path, fields: dict[str, Any], files: dict[str, Any] | None = None) -> Adapter:
    tokenizer = {"tokenizer.json": byte_tokenizer(["<s>"]), "tokenizer_config.json": {"chat_template": "T"}}
    write_files(folder, {"config.json": fields, **tokenizer, **(files or published_files(fields))})
    checkpoint = Checkpoint(folder)
    return NvilaAdapter.from_config(checkpoint.config, checkpoint)


def measured(adapter: Adapter, *sizes: tuple[int, int]) -> tuple[ItemPlan, ...]:
    infos = [MediaInfo("image", height=height, width=width) for height, width in sizes]
    return adapter.inputs.measure(infos, [adapter.inputs] * len(infos))


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_of_the_layer_table(tmp_path: Path, name: str) -> None:
    fields = PUBLISHED[name]
    model = build_model(adapter_of(tmp_path, fields), torch.bfloat16, torch.device("meta"))
    text = fields.get("llm_cfg") or fields["text_config"]
    vision = fields.get("vision_tower_cfg") or fields["vision_config"]
    scales = 3 if name in ("NVILA-8B", "NVILA-15B", "NVILA-8B-hf") else 1
    threefold = "Lite" in name
    seen = scaled_tower(vision) if name == "VILA1.5-40b" else tower(vision)
    rows = projector(scales * vision["hidden_size"], text["hidden_size"], threefold)
    counted = language(text) + seen + rows
    assert sum(parameter.numel() for parameter in model.parameters()) == counted


def language(text: dict[str, Any]) -> int:
    hidden, heads, shared = text["hidden_size"], text["num_attention_heads"], text["num_key_value_heads"]
    keys = hidden // heads * shared
    attention = 2 * hidden * hidden + 2 * hidden * keys
    biases = hidden + 2 * keys if text["model_type"] == "qwen2" else 0
    block = attention + biases + 3 * hidden * text["intermediate_size"] + 2 * hidden
    tables = 1 if text["tie_word_embeddings"] else 2
    return int(text["num_hidden_layers"] * block + tables * hidden * text["vocab_size"] + hidden)


def tower(vision: dict[str, Any]) -> int:
    """Without the last block, the norm after it, and a pooling head."""
    width, inner, patch = vision["hidden_size"], vision["intermediate_size"], vision["patch_size"]
    block = 4 * (width * width + width) + 2 * width * inner + inner + width + 4 * width
    patches = (vision["image_size"] // patch) ** 2
    return int((vision["num_hidden_layers"] - 1) * block + width * (3 * patch * patch + 1 + patches))


def scaled_tower(vision: dict[str, Any]) -> int:
    """All blocks, with a class token and two scales each; queries, keys and values have no bias."""
    width, inner, patch = vision["hidden_size"], vision["intermediate_size"], vision["patch_size"]
    attention = 4 * width * width + width + 2 * width
    block = attention + 2 * width * inner + inner + width + 2 * width + 2 * width
    patches = (vision["image_size"] // patch) ** 2
    tables = width * (3 * patch * patch + 1) + width + width * (patches + 1)
    return int(vision["num_hidden_layers"] * block + tables)


def projector(width: int, hidden: int, threefold: bool) -> int:
    folded, count = (9 if threefold else 4) * width, 2 * (9 if threefold else 4) * width
    if threefold:
        count += folded * 3 * width + 3 * width + 2 * 3 * width
        folded = 3 * width
    return count + folded * hidden + hidden + hidden * hidden + hidden


def test_nvila_8b(tmp_path: Path) -> None:
    """9 to 12 blocks of 256 rows and one newline behind one placeholder; of several pictures one each."""
    adapter = adapter_of(tmp_path, PUBLISHED["NVILA-8B"])
    (square,), (wide,) = measured(adapter, (500, 500)), measured(adapter, (300, 400))
    newline = adapter.inputs.newline if isinstance(adapter.inputs, NvilaProcessor) else ()
    assert (square.geometry, wide.geometry) == ((3, 3), (3, 4))
    assert square.pieces == (Rows(9 * 256), Tokens(newline))
    assert wide.rows == 12 * 256
    assert [plan.rows for plan in measured(adapter, (500, 500), (300, 400))] == [256, 256]
    assert adapter.decoder.vocab_size == 151648


def test_placeholders_lie_beyond_the_embedding(tmp_path: Path) -> None:
    adapter = adapter_of(tmp_path, PUBLISHED["NVILA-8B-hf"])
    assert [(p.text, p.token_id) for p in adapter.placeholders] == [
        ("<image>", 151649),
        ("<vila/video>", 151650),
    ]


def test_lite_writes_a_line_break_behind_each_tile(tmp_path: Path) -> None:
    adapter = adapter_of(tmp_path, PUBLISHED["NVILA-Lite-8B"])
    (plan,) = measured(adapter, (900, 1800))
    assert isinstance(adapter.inputs, NvilaProcessor)
    newline = adapter.inputs.newline
    tile, last = (Rows(121), Tokens(newline + newline)), (Rows(121), Tokens(newline))
    assert plan.geometry == (2, 4)
    assert plan.pieces == tile * 8 + last  # and the template one behind the thumbnail


def test_vila_1_5_has_196_rows(tmp_path: Path) -> None:
    adapter = adapter_of(tmp_path, PUBLISHED["VILA1.5-3b"])
    assert [plan.pieces for plan in measured(adapter, (10, 3000), (5, 5))] == [(Rows(196),)] * 2


def test_vila_1_5_40b_has_256_rows(tmp_path: Path) -> None:
    """Its tower's settings are in no file: those of ImageNet."""
    adapter = adapter_of(tmp_path, PUBLISHED["VILA1.5-40b"])
    assert [plan.pieces for plan in measured(adapter, (10, 3000))] == [(Rows(256),)]
    assert isinstance(adapter.inputs, NvilaProcessor)
    assert (adapter.inputs.shape.height, adapter.inputs.shape.mean) == (448, (0.485, 0.456, 0.406))


INTERN = PUBLISHED["VILA1.5-40b"]["vision_tower_cfg"]
CHANGES: list[tuple[str, dict[str, Any], str]] = [
    ("VILA1.5-3b", {"image_aspect_ratio": "pad"}, "image_aspect_ratio 'pad'"),
    ("VILA1.5-3b", {"s2": True}, "s2 True"),
    ("VILA1.5-3b", {"mm_vision_select_feature": "patch"}, "mm_vision_select_feature 'patch'"),
    ("VILA1.5-3b", {"mm_projector_cfg": {"mm_projector_type": "mlp2x_gelu"}}, "'mlp2x_gelu'"),
    ("VILA1.5-3b", {"vision_tower_cfg": {"model_type": "radio"}}, "'radio'"),
    ("VILA1.5-40b", {"mm_vision_select_feature": "cls_patch"}, "mm_vision_select_feature 'cls_patch'"),
    ("VILA1.5-40b", {"vision_tower_cfg": {**INTERN, "qkv_bias": True}}, "qkv_bias True"),
    ("VILA1.5-40b", {"vision_tower_cfg": {**INTERN, "norm_type": "layer_norm"}}, "norm_type 'layer_norm'"),
    ("VILA1.5-3b", {"llm_cfg": {"model_type": "mixtral"}}, "'mixtral'"),
    ("VILA1.5-3b", {"llm_cfg": None}, "has no llm_cfg"),
    ("VILA1.5-3b", {"chat_template": "alpaca"}, "chat_template 'alpaca'"),
    ("NVILA-8B", {"s2_resize_output_to_scale_idx": 0}, "s2_resize_output_to_scale_idx"),
    ("NVILA-8B", {"s2_scales": "a,b"}, "s2_scales 'a,b'"),
    ("NVILA-8B", {"max_tiles": 8}, "max_tiles 8"),
]


@pytest.mark.parametrize(("name", "change", "message"), CHANGES, ids=[message for *_, message in CHANGES])
def test_what_is_refused(tmp_path: Path, name: str, change: dict[str, Any], message: str) -> None:
    files = published_files(PUBLISHED[name])
    with pytest.raises(MMCoreError, match=message.replace("(", r"\(")):
        adapter_of(tmp_path, {**PUBLISHED[name], **change}, files)


def test_tiles_are_of_one_size(tmp_path: Path) -> None:
    wrong = {"vision_tower/preprocessor_config.json": {"size": {"height": 400, "width": 400}}}
    with pytest.raises(MMCoreError, match="pictures are not 448 x 448"):
        adapter_of(tmp_path, PUBLISHED["NVILA-8B"], wrong)


def test_options(tmp_path: Path) -> None:
    processor = adapter_of(tmp_path, PUBLISHED["NVILA-8B"]).inputs
    with pytest.raises(UnsupportedOptionError, match="'fps' is none of frames, max_frames"):
        processor.with_options({"fps": 2})
    chosen = processor.with_options({"frames": [3, 5]})
    (plan,) = processor.measure([MediaInfo("video", frames=9, seconds=3.0)], [chosen])
    assert (plan.source.frames, plan.rows) == ((3, 5), 512)


def test_parts_may_keep_their_configs_to_themselves(tmp_path: Path) -> None:
    """Then ``config.json`` names no part, and each folder has its own."""
    folder = write_tiny_checkpoint(tmp_path)
    fields = config(VARIANTS["nvila"])
    names = ("llm_cfg", "vision_tower_cfg", "mm_projector_cfg")
    for part, name in zip(FOLDERS, names, strict=True):
        (folder / part / "config.json").write_text(json.dumps(fields.pop(name)))
    (folder / "config.json").write_text(json.dumps(fields))
    with LLM(folder, dtype="float32", device="cpu", max_num_tokens=96) as llm:
        assert llm.generate("a", use_tqdm=False).token_ids
