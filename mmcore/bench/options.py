"""Options that the commands of ``mmcore bench`` share, and what they mean. Names follow the field's."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmcore.bench.dataset import read_dataset
from mmcore.bench.workload import Workload
from mmcore.errors import ConfigError

if TYPE_CHECKING:
    from mmcore import LLM
    from mmcore.bench.measure import Work


def add_model(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    which = group.add_mutually_exclusive_group(required=True)
    which.add_argument("--model", metavar="MODEL", help="a checkpoint folder, or a hub name")
    which.add_argument(
        "--random-weights",
        metavar="CONFIG",
        type=Path,
        help="a folder with a model's config.json and tokenizer: its shapes with weights made up",
    )
    group.add_argument("--dtype", choices=("auto", "float32", "float16", "bfloat16"), default="auto")
    group.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    group.add_argument("--kv-cache-dtype", choices=("auto", "fp8"), default="auto")
    group.add_argument("--max-batch-size", metavar="N", type=positive(int), default=256)
    group.add_argument("--max-num-tokens", metavar="N", type=positive(int), default=8192, help="of a step")


def add_work(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output-len", metavar="N", type=positive(int), default=128, help="default: %(default)s"
    )
    parser.add_argument("--seed", metavar="N", type=int, default=1, help="default: %(default)s")
    group = parser.add_argument_group("requests out of a file")
    group.add_argument(
        "--dataset",
        metavar="FILE",
        type=Path,
        help='JSON Lines: {"prompt": TEXT, "images": [FILE], "output_tokens": N}; also audios, videos',
    )
    add_made_up(parser)


def add_made_up(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("requests made up: a text each, new in every run")
    group.add_argument("--input-len", metavar="N", type=positive(int), help="of a prompt and its media")
    group.add_argument("--image-size", metavar="WxH", type=size, help="a picture of this size each")
    group.add_argument("--audio-seconds", metavar="S", type=positive(float), help="so much sound each")
    group.add_argument(
        "--distinct-media", metavar="N", type=positive(int), help="media shared by all (default: none is)"
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the figures there")
    parser.add_argument(
        "--profile",
        metavar="FILE",
        type=Path,
        help="run once more under the profiler: a Chrome trace, and a table of where a step's time goes",
    )


def positive(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """What argparse makes an option's number with."""

    def read(text: str) -> Any:
        value = kind(text)
        if not value > 0:
            raise argparse.ArgumentTypeError(f"{text} is not above 0")
        return value

    read.__name__ = kind.__name__  # what argparse calls a value that is none
    return read


def size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    if not (width.isdigit() and height.isdigit() and int(width) and int(height)):
        raise argparse.ArgumentTypeError(f"{text}: give width and height, as in 448x448")
    return int(width), int(height)


def engine_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `make_llm` is called with; plain values, as JSON can carry them."""
    made_up = arguments.random_weights
    if made_up is not None and made_up.name == "config.json":
        made_up = made_up.parent
    return {
        "model": str(arguments.model or made_up),
        "load_format": "dummy" if made_up else "auto",
        "dtype": arguments.dtype,
        "device": arguments.device,
        "kv_cache_dtype": arguments.kv_cache_dtype,
        "max_batch_size": arguments.max_batch_size,
        "max_num_tokens": arguments.max_num_tokens,
    }


def make_llm(options: Mapping[str, Any]) -> LLM:
    from mmcore import LLM, KvCacheConfig

    others = {name: value for name, value in options.items() if name != "kv_cache_dtype"}
    return LLM(**others, kv_cache_config=KvCacheConfig(dtype=options["kv_cache_dtype"]))


def open_llm(arguments: argparse.Namespace) -> LLM:
    return make_llm(engine_options(arguments))


def asked(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the figures stand for: the options by name, of files and folders only the name."""
    left_out = ("run", "json", "profile", "log_level")
    values = {name: value for name, value in vars(arguments).items() if name not in left_out}
    model = values.get("model") or values.pop("random_weights", None)
    if model is not None:
        values["model"] = Path(model).resolve().name
    named = {name: value.name if isinstance(value, Path) else value for name, value in values.items()}
    return {name: value for name, value in named.items() if value is not None}


def work(arguments: argparse.Namespace, requests: int | None, default: int = 1) -> Work:
    """``requests`` of the dataset or made up; None: all of the dataset, else ``default``."""
    if arguments.dataset is not None:
        generated = ("input_len", "image_size", "audio_seconds", "distinct_media")
        given = [name for name in generated if getattr(arguments, name) is not None]
        if given:
            option = given[0].replace("_", "-")
            raise ConfigError(f"--{option} is of made-up requests, and --dataset names a file; give one")
        return read_dataset(arguments.dataset, requests, arguments.output_len)
    return made_up(arguments, requests or default, arguments.output_len)


def made_up(arguments: argparse.Namespace, requests: int, new_tokens: int = 1) -> Workload:
    if arguments.image_size and arguments.audio_seconds:
        raise ConfigError("--image-size and --audio-seconds are two workloads; give one of them")
    return Workload(
        name="picture" if arguments.image_size else "sound" if arguments.audio_seconds else "text",
        requests=requests,
        picture=arguments.image_size,
        seconds=arguments.audio_seconds or 0.0,
        distinct=arguments.distinct_media or 0,
        prompt_tokens=arguments.input_len or 0,
        new_tokens=new_tokens,
    )
