"""Checkpoint folders: small files, weights, digests, and the hub."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from inputs.toy_family import byte_level_json

from mmcore.errors import CheckpointError, ConfigError
from mmcore.inputs.checkpoint import Checkpoint
from mmcore.inputs.decoding import PlainDecoding, SuppressRule, decoding_defaults
from mmcore.inputs.digest import DigestCache, hub_revision
from mmcore.inputs.hub import resolve_model

REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "mmcore" / "digests.json"


def folder(path: Path, **files: Any) -> Path:
    """``a__json={...}`` writes ``a.json``."""
    path.mkdir(parents=True, exist_ok=True)
    for name, content in {"config__json": {"model_type": "toy"}, **files}.items():
        file = path / name.replace("__", ".")
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        file.write_bytes(data)
    return path


def test_small_files(tmp_path: Path) -> None:
    checkpoint = Checkpoint(
        folder(tmp_path / "m", tokenizer__json=byte_level_json().encode(), broken__json=b"{", list__json=[1])
    )
    assert checkpoint.config == {"model_type": "toy"}
    assert checkpoint.json("nothing.json") == {}
    assert checkpoint.text("nothing.txt") is None
    assert checkpoint.tokenizer.token_id("<|im_end|>") is not None
    assert checkpoint.tokenizer is checkpoint.tokenizer
    for name, message in (("broken.json", "is not JSON"), ("list.json", "not a JSON object")):
        with pytest.raises(CheckpointError, match=message):
            checkpoint.json(name)
    for name in ("../secret", "/etc/hostname", "a/../../b"):
        with pytest.raises(CheckpointError, match="does not lie inside"):
            checkpoint.text(name)


def test_what_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not a folder"):
        Checkpoint(tmp_path / "nothing")
    empty = Checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        _ = empty.config
    with pytest.raises(CheckpointError, match=r"has no tokenizer\.json; .*save_pretrained"):
        _ = empty.tokenizer
    with pytest.raises(CheckpointError, match="pickles"):
        empty.weight_files()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"chat_template__jinja": b"A"}, "A"),
        ({"chat_template__json": {"chat_template": "B"}}, "B"),
        ({"processor_config__json": {"chat_template": "C"}}, "C"),
        ({"tokenizer_config__json": {"chat_template": "D"}}, "D"),
        ({"tokenizer_config__json": {"chat_template": [{"name": "default", "template": "E"}]}}, "E"),
        ({"tokenizer_config__json": {"chat_template": [{"name": "tools", "template": "F"}]}}, None),
        ({"chat_template__jinja": b"A", "tokenizer_config__json": {"chat_template": "D"}}, "A"),
    ],
)
def test_where_chat_templates_lie(tmp_path: Path, files: dict[str, Any], expected: str | None) -> None:
    assert Checkpoint(folder(tmp_path / "m", **files)).chat_template == expected


def test_weight_files_one_or_many(tmp_path: Path) -> None:
    one = Checkpoint(folder(tmp_path / "one", model__safetensors=b"w"))
    assert [f.name for f in one.weight_files()] == ["model.safetensors"]
    index = {"weight_map": {"b": "2.safetensors", "a": "1.safetensors", "c": "1.safetensors"}}
    many = folder(
        tmp_path / "many", **{"1__safetensors": b"x", "2__safetensors": b"y", "old__safetensors": b"z"}
    )
    (many / "model.safetensors.index.json").write_text(json.dumps(index))
    assert [f.name for f in Checkpoint(many).weight_files()] == ["1.safetensors", "2.safetensors"]
    (many / "2.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"names 2\.safetensors"):
        Checkpoint(many).weight_files()


def test_a_folder_of_models(tmp_path: Path) -> None:
    """Weights of each sub-folder; the tokenizer's files beside the tokenizer, the others at the top."""
    whole = folder(tmp_path / "m", preprocessor__json={"size": 1})
    folder(whole / "text", tokenizer__json=byte_level_json().encode(), generation_config__json={"a": 1})
    (whole / "text" / "tokenizer_config.json").write_text('{"chat_template": "T"}')
    for part in ("text", "tower"):
        (whole / part).mkdir(exist_ok=True)
        (whole / part / "model.safetensors").write_bytes(part.encode())
    (whole / "pictures").mkdir()
    checkpoint = Checkpoint(whole)
    assert [str(f.relative_to(whole)) for f in checkpoint.weight_files()] == [
        "text/model.safetensors",
        "tower/model.safetensors",
    ]
    assert checkpoint.tokenizer.token_id("<|im_end|>") is not None
    assert checkpoint.chat_template == "T"
    assert checkpoint.json("generation_config.json") == {"a": 1}
    assert checkpoint.config == {"model_type": "toy"}
    before = checkpoint.digest()
    (whole / "tower" / "config.json").write_text('{"layers": 2}')
    after = Checkpoint(whole).digest()
    (whole / "tower").rename(whole / "vision")
    assert len({before, after, Checkpoint(whole).digest()}) == 3
    (whole / "model.safetensors").write_bytes(b"all")
    assert [f.parent for f in Checkpoint(whole).weight_files()] == [whole]


def header(**shapes: int) -> bytes:
    """A safetensors file of int8 vectors, without the vectors."""
    entries = {name: {"dtype": "I8", "shape": [n], "data_offsets": [0, n]} for name, n in shapes.items()}
    text = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
    return len(text).to_bytes(8, "little") + text


def test_names_of_tensors_come_from_the_headers(tmp_path: Path) -> None:
    """In several files, and in sub-folders under their names; nothing is read of the tensors."""
    flat = folder(tmp_path / "m", **{"1__safetensors": header(a=3, b=2), "2__safetensors": header(c=1)})
    assert Checkpoint(flat).tensor_names == {"a", "b", "c"}
    parts = folder(tmp_path / "parts")
    folder(parts / "text", model__safetensors=header(**{"layers.0": 2}))
    folder(parts / "tower", model__safetensors=header(norm=2))
    assert Checkpoint(parts).tensor_names == {"text.layers.0", "tower.norm"}


@pytest.mark.parametrize(
    "content",
    [b"", b"\x01", b"not safetensors at all", b"\xff" * 8, b"\x02" + b"\0" * 7 + b"[]", header(a=1)[:-3]],
)
def test_names_of_a_file_that_cannot_be_read_are_none(tmp_path: Path, content: bytes) -> None:
    """Loading says what is wrong with it."""
    assert Checkpoint(folder(tmp_path / "m", model__safetensors=content)).tensor_names == frozenset()
    assert Checkpoint(folder(tmp_path / "none")).tensor_names == frozenset()


def test_two_tokenizers_are_none(tmp_path: Path) -> None:
    whole = folder(tmp_path / "m")
    for part in ("a", "b"):
        folder(whole / part, tokenizer__json=byte_level_json().encode())
    with pytest.raises(CheckpointError, match=r"has no tokenizer\.json"):
        _ = Checkpoint(whole).tokenizer


@pytest.mark.parametrize(
    "shards", [{"a": "../x.safetensors"}, {"a": "/x.safetensors"}, {"a": "x.bin"}, ["a"]]
)
def test_an_index_names_files_of_its_folder_alone(tmp_path: Path, shards: Any) -> None:
    checkpoint = folder(tmp_path / "m")
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    with pytest.raises(CheckpointError, match="names something else"):
        Checkpoint(checkpoint).weight_files()


# ------------------------------------------------------------------ digests


def digest(path: Path, **files: Any) -> bytes:
    return Checkpoint(folder(path, **files)).digest()


def test_weights_and_config_decide_the_digest(tmp_path: Path) -> None:
    base = digest(tmp_path / "a", model__safetensors=b"one")
    assert len(base) == 32
    assert base == digest(tmp_path / "b", model__safetensors=b"one", README__md=b"hi", tokenizer__json=b"x")
    assert base != digest(tmp_path / "c", model__safetensors=b"two")
    assert base != digest(tmp_path / "d", model__safetensors=b"one", config__json={"rope_theta": 1})


def test_a_file_that_changes_in_place_changes_the_digest(tmp_path: Path) -> None:
    base = digest(tmp_path / "a", model__safetensors=b"one")
    later = os.stat(tmp_path / "a" / "model.safetensors").st_mtime_ns + 10_000_000
    (tmp_path / "a" / "model.safetensors").write_bytes(b"two")
    os.utime(tmp_path / "a" / "model.safetensors", ns=(later, later))
    assert base != Checkpoint(tmp_path / "a").digest()


def test_digests_are_remembered_by_path_size_and_time(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = digest(tmp_path / "a", model__safetensors=b"one")
    remembered = json.loads(cache.read_text())
    assert len(remembered) == 1
    (name,) = remembered
    cache.write_text(json.dumps({name: "00" * 32}))
    assert Checkpoint(tmp_path / "a").digest() != first  # it was taken from the cache, not hashed again
    cache.write_text("broken")
    assert Checkpoint(tmp_path / "a").digest() == first
    cache.write_text(json.dumps({name: "no digest"}))
    assert Checkpoint(tmp_path / "a").digest() == first


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "weights").write_bytes(b"w")
    cache = DigestCache(tmp_path / "file" / "digests.json")
    assert cache.file_digest(tmp_path / "weights") == cache.file_digest(tmp_path / "weights")


def test_a_snapshot_of_the_hub_is_known_by_its_revision(tmp_path: Path, cache: Path) -> None:
    snapshot = tmp_path / "models--a--b" / "snapshots" / REVISION
    one = digest(snapshot, model__safetensors=b"one")
    assert hub_revision(snapshot) == REVISION
    assert not cache.exists()
    other = tmp_path / "models--a--b" / "snapshots" / REVISION[::-1]
    assert one != digest(other, model__safetensors=b"one")
    assert hub_revision(tmp_path / "snapshots" / REVISION) is None


# ------------------------------------------------------------------ the hub


def test_a_folder_is_itself(tmp_path: Path) -> None:
    assert resolve_model(tmp_path) == resolve_model(str(tmp_path)) == tmp_path


@pytest.mark.parametrize(
    "name", ["./nothing", "/no/such/folder", "a/b/c", "", "~no-such-user/x", Path("/no/folder")]
)
def test_what_is_neither_folder_nor_name(name: Any) -> None:
    with pytest.raises(CheckpointError, match="there is no folder"):
        resolve_model(name)


@pytest.fixture
def offline_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache with one model, and no network."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    model = tmp_path / "models--owner--model"
    folder(model / "snapshots" / REVISION)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(REVISION)
    return model


def test_a_name_is_found_in_the_hubs_cache(offline_hub: Path) -> None:
    found = resolve_model("owner/model")
    assert found == offline_hub / "snapshots" / REVISION
    assert resolve_model("owner/model", revision=REVISION) == found
    assert hub_revision(found) == REVISION


@pytest.mark.parametrize(
    ("name", "revision", "message"),
    [
        (
            "owner/other",
            None,
            "'owner/other' here, .* not in the local cache",
        ),
        ("owner/model", "v9", "'owner/model' at revision 'v9' here, .* not in the local cache"),
    ],
)
def test_a_name_that_cannot_be_had(offline_hub: Path, name: str, revision: str | None, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        resolve_model(name, revision=revision)


def test_without_huggingface_hub_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match=r"pip install 'mmcore-runtime\[hub\]'"):
        resolve_model("owner/model")


# ------------------------------------------------------------------ decoding defaults


def test_defaults_of_generation_config() -> None:
    sampled = decoding_defaults(
        {
            "eos_token_id": [1, 2],
            "do_sample": True,
            "temperature": 0.1,
            "top_k": 5,
            "top_p": 0.9,
            "max_new_tokens": 7,
        }
    )
    assert (sampled.stop_ids, sampled.temperature, sampled.top_k, sampled.top_p) == ((1, 2), 0.1, 5, 0.9)
    assert sampled.max_tokens == 7
    greedy = decoding_defaults(
        {"temperature": 0.1, "suppress_tokens": [3], "begin_suppress_tokens": [4]}, {"eos_token_id": 9}
    )
    assert (greedy.stop_ids, greedy.temperature, greedy.top_k) == ((9,), None, None)
    assert (greedy.suppress_ids, greedy.first_suppress_ids) == ((3,), (4,))
    assert decoding_defaults({}).stop_ids == ()


def test_plain_decoding_bans_what_is_suppressed() -> None:
    request: Any = None
    decoding = PlainDecoding(decoding_defaults({"suppress_tokens": [3], "begin_suppress_tokens": [4]}))
    (rule,) = decoding.logits_rules(request)
    assert rule == SuppressRule((3,), (4,))
    assert (rule.edit(()).banned, rule.edit((7,)).banned) == ((3, 4), (3,))
    assert not rule.needs_host_ids
    assert PlainDecoding().logits_rules(request) == ()
