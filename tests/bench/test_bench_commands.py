"""`mmcore bench COMMAND` as it is typed, on the reader that comes with a plugin."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from mmcore.cli import main

READER = str(files("mmcore_qwen2vl") / "reader")
Captured = pytest.CaptureFixture[str]


def bench(tmp_path: Path, *arguments: str) -> Mapping[str, Any]:
    """What the command wrote as JSON."""
    out = tmp_path / "figures.json"
    assert main(["bench", *arguments, "--json", str(out)]) == 0
    found: Mapping[str, Any] = json.loads(out.read_text())
    assert found["command"] == arguments[0]
    assert {"device", "torch", "commit", "mmcore-runtime"} <= set(found)
    return found


def test_throughput_over_several_batches(tmp_path: Path, capsys: Captured) -> None:
    options = ["--num-requests", "1", "3", "--output-len", "2", "--num-iters", "1", "--image-size", "56x56"]
    found = bench(tmp_path, "throughput", "--model", READER, "--input-len", "120", *options)
    assert [row["requests"] for row in found["rows"]] == [1, 3]
    assert {row["prompt_tokens"] for row in found["rows"]} == {120}
    one, three = (row["tokens_per_second"]["median"] * row["total_ms"]["median"] for row in found["rows"])
    assert (one, three) == (pytest.approx(2000), pytest.approx(6000))
    assert "tokens/s" in capsys.readouterr().out


def test_throughput_of_a_dataset(tmp_path: Path) -> None:
    Image.new("RGB", (84, 56), "teal").save(tmp_path / "teal.png")
    lines: list[dict[str, Any]] = [
        {"prompt": "What colour?", "images": ["teal.png"], "output_tokens": 3},
        {"prompt": "Hello there", "output_tokens": 5},
        {"prompt": "As the command says"},
    ]
    file = tmp_path / "asked.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    options = ["--dataset", str(file), "--output-len", "2", "--num-iters", "2"]
    (row,) = bench(tmp_path, "throughput", "--model", READER, *options)["rows"]
    assert (row["workload"], row["requests"], row["cached_tokens"]) == ("asked.jsonl", 3, 0)
    assert row["tokens_per_second"]["low"] * row["total_ms"]["high"] == pytest.approx(1000 * (3 + 5 + 2))
    (row,) = bench(tmp_path, "throughput", "--model", READER, *options, "--num-requests", "1")["rows"]
    assert row["requests"] == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", ":2 is not JSON"),
        ('"text"', ':2: a line is {"prompt": TEXT'),
        ('{"prompt": "a", "image": "a.png"}', ":2: unknown field 'image'; there are images, audios, videos"),
        ('{"prompt": "a", "images": "a.png"}', ":2: images is a list"),
        ('{"prompt": "a", "output_tokens": 0}', ":2: output_tokens"),
    ],
)
def test_a_bad_line_is_named(line: str, words: str, tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "asked.jsonl"
    file.write_text(f'{{"prompt": "fine"}}\n{line}\n')
    assert main(["bench", "throughput", "--model", "nowhere", "--dataset", str(file)]) == 2
    assert words in capsys.readouterr().err


def test_latency(tmp_path: Path, capsys: Captured) -> None:
    options = ["--batch-size", "2", "--output-len", "3", "--num-iters", "2", "--num-iters-warmup", "0"]
    (row,) = bench(tmp_path, "latency", "--model", READER, *options)["rows"]
    assert (row["requests"], row["iterations"]) == (2, 2)
    for name in ("first_ms", "token_ms", "whole_ms"):
        assert 0 < row[name]["p50"] <= row[name]["p90"] <= row[name]["p99"]
    assert row["first_ms"]["p99"] < row["whole_ms"]["p99"]
    assert "time to first token" in capsys.readouterr().out


def test_serve_sim(tmp_path: Path, capsys: Captured) -> None:
    options = ["--request-rate", "40", "inf", "--num-requests", "4", "--output-len", "2"]
    found = bench(tmp_path, "serve-sim", "--model", READER, *options)
    assert [(row["request_rate"], row["requests"]) for row in found["rows"]] == [(40.0, 4), (None, 4)]
    for row in found["rows"]:
        assert row["tokens_per_second"] == pytest.approx(2 * row["requests_per_second"])
        assert row["first_ms"]["p99"] <= row["whole_ms"]["p99"]
    assert "reached/s" in capsys.readouterr().out


def test_startup_of_shapes_without_weights(tmp_path: Path, capsys: Captured) -> None:
    """The folder has no weights at all, and the process that starts is a new one."""
    folder = tmp_path / "shapes"
    folder.mkdir()
    for file in Path(READER).glob("*.json"):
        (folder / file.name).write_bytes(file.read_bytes())
    found = bench(tmp_path, "startup", "--random-weights", str(folder / "config.json"), "--num-iters", "1")
    (row,) = found["rows"]
    assert list(row["stages"])[:3] == ["config", "model", "weights"]
    assert 0 < sum(row["stages"].values()) <= row["ready"]
    assert row["imports"] > 0.1
    assert "first token" in capsys.readouterr().out


def test_a_start_that_fails_says_why(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "startup", "--model", str(tmp_path), "--num-iters", "1"]) == 1
    shown = capfd.readouterr().err
    assert "has no config.json" in shown
    assert "Traceback" not in shown


def test_a_profile_tells_where_steps_spend_their_time(tmp_path: Path, capsys: Captured) -> None:
    trace = tmp_path / "trace.json"
    options = ["--num-iters", "1", "--output-len", "4", "--image-size", "56x56", "--profile", str(trace)]
    bench(tmp_path, "throughput", "--model", READER, *options)
    lines = capsys.readouterr().out.splitlines()
    table = {line.split()[0]: line.split()[1:] for line in lines[lines.index("") + 3 :]}
    assert {"encoder", "prompt", "decode", "schedule", "step"} <= set(table)
    assert (table["prompt"][0], table["decode"][0]) == ("1", "3")
    assert "traceEvents" in json.loads(trace.read_text())


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what is wrong without a CUDA device")
def test_kernels_need_a_gpu(capsys: Captured) -> None:
    assert main(["bench", "kernels"]) == 2
    assert "no CUDA device" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["throughput"], "--model --random-weights is required"),
        (["throughput", "--model", "a", "--random-weights", "b"], "not allowed with"),
        (["throughput", "--model", "a", "--image-size", "big"], "width and height"),
        (["throughput", "--model", "a", "--num-requests", "0"], "not above 0"),
        (["latency", "--model", "a", "--image-size", "8x8", "--audio-seconds", "1"], "two workloads"),
        (["latency", "--model", "a", "--dataset", "f", "--input-len", "9"], "--input-len is of made-up"),
        (["serve-sim", "--model", "a", "--request-rate", "0"], "not above 0"),
    ],
)
def test_a_wrong_option(arguments: list[str], words: str, capsys: Captured) -> None:
    try:
        code: Any = main(["bench", *arguments])
    except SystemExit as error:
        code = error.code
    assert code == 2
    assert words in capsys.readouterr().err
