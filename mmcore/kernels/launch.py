"""Launching a Triton kernel again and again, at the price of its arguments alone."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

from mmcore.errors import KernelError
from mmcore.kernels.dispatch import SWITCH


class Launcher:
    """A kernel, with what was compiled for each of the caller's keys.

    Triton works out at every launch which compiled variant its arguments need: tens of microseconds for a
    kernel of many. A caller that knows what its arguments can differ in says so in a key. The key must hold
    all that Triton specialises on: constants, dtypes, the device, the alignment of pointers.
    """

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._compiled: dict[Hashable, Any] = {}

    def __call__(
        self, key: Hashable, grid: tuple[int, int, int], args: tuple[Any, ...], **options: Any
    ) -> None:
        """Launch on the current stream; ``args`` in the order of the kernel, constants included."""
        compiled = self._compiled.get(key)
        if compiled is not None:
            compiled[grid](*args)
            return
        compiled = self._compile(grid, args, options)
        if compiled is not None:  # the interpreter compiles nothing
            self._compiled[key] = compiled

    def _compile(self, grid: tuple[int, int, int], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Triton's launch, which compiles. Raises `KernelError` where the kernel does not fit the card."""
        try:
            return self._kernel[grid](*args, **options)
        except (torch.AcceleratorError, torch.OutOfMemoryError):
            raise  # of the device, not of this kernel
        except Exception as error:  # compilers of several kinds, whose errors have no common base
            name = getattr(self._kernel, "__name__", str(self._kernel))
            reason = f"{type(error).__name__}: {_first_line(error)}"
            raise KernelError(
                f"kernel {name!r} does not run on this device ({reason}); "
                f"see `mmcore doctor`, or go without Triton, slower: export {SWITCH}=torch"
            ) from error


class RowLauncher:
    """A kernel of programs by row, all of whose arguments but tensors go into the key as they are: fit for
    strides and constants, of which a model has few."""

    def __init__(self, kernel: Any) -> None:
        self._launch = Launcher(kernel)

    def __call__(self, arguments: tuple[Any, ...], rows: int, parts: int = 1, **options: Any) -> None:
        """``rows`` x ``parts`` programs."""
        key = tuple(_told(argument) for argument in arguments)
        self._launch(key, (rows, parts, 1), arguments, **options)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0][:200]


def rows_of(x: Tensor, width: int) -> Tensor:
    """[..., width] as [rows, width] whose columns adjoin, as kernels by row read them; else a copy."""
    return adjoining(x.reshape(-1, width))


def adjoining(x: Tensor) -> Tensor:
    """With its last dimension in adjacent memory."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _told(argument: Any) -> Hashable:
    """What Triton may specialise on."""
    if not isinstance(argument, Tensor):
        return argument  # type: ignore[no-any-return]
    return argument.dtype, argument.device, argument.data_ptr() % 16 == 0
