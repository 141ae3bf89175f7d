"""Reading ``config.json``: fields that must be there, names that must be known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from mmcore.decoder_config import Activation
from mmcore.errors import CheckpointError, MMCoreError, UnsupportedOptionError

Json = Mapping[str, Any]
P = ParamSpec("P")
R = TypeVar("R")

_ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "quick_gelu": "quick_gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}


def need(part: Json, name: str, where: str = "config.json") -> Any:
    """A field that has no default. Raises `CheckpointError`."""
    if part.get(name) is None:
        raise CheckpointError(f"{where}: field {name!r} is missing; is the checkpoint whole?")
    return part[name]


def activation_of(name: str) -> Activation:
    """The hub's name of an activation. Raises `CheckpointError`."""
    if name not in _ACTIVATIONS:
        raise CheckpointError(f"config.json: activation {name!r} is none of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def only_built(part: Json, built: Json, where: str, file: str = "config.json") -> None:
    """Raises `UnsupportedOptionError` for a field that is there with another value."""
    for name, value in built.items():
        if part.get(name, value) not in (value, None):
            raise UnsupportedOptionError(f"{file}: {where}.{name} {part[name]!r} is not built, {value!r} is")


def only_options(options: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raises `UnsupportedOptionError` for a request's option that has another name."""
    for name in options:
        if name not in names:
            known = f"is none of {', '.join(names)}" if names else "is unknown: this model's media have none"
            raise UnsupportedOptionError(f"option {str(name)[:40]!r} {known}")


def reads_checkpoint(read: Callable[P, R]) -> Callable[P, R]:
    """A ``from_config`` in which a field of another type or an absurd value is a `CheckpointError`.

    All that such a function does is read the checkpoint's files: what it trips over stands there.
    """

    @wraps(read)
    def reading(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return read(*args, **kwargs)
        except MMCoreError:
            raise
        except Exception as error:
            raise CheckpointError(
                f"a field of the checkpoint's files has another type or value than this family reads "
                f"({type(error).__name__}: {error}); is config.json of another version, or damaged?"
            ) from error

    return reading
