"""The encoder on small inputs as CUDA graphs, by their shapes: there the host's launches take the time."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from mmcore.runner.graph_recorder import GraphRecorder

logger = logging.getLogger(__name__)

MOST_BYTES = 16 << 20
"""Of inputs; larger ones keep the device busy while the host launches."""
MOST_GRAPHS = 8

Tensors = Mapping[str, Tensor]
Key = tuple[tuple[str, torch.Size], ...]


class EncoderGraph:
    """One shape's inputs, always in the same place, and the replay of the encoder over them."""

    def __init__(self, module: nn.Module, tensors: Tensors, recorder: GraphRecorder) -> None:
        self._inputs = {name: tensor.clone() for name, tensor in tensors.items()}
        self._replay: Callable[[], Tensor] = recorder.record(lambda: module(**self._inputs))

    def run(self, tensors: Tensors) -> Tensor:
        """Rows that are overwritten by the next run."""
        for name, tensor in tensors.items():
            self._inputs[name].copy_(tensor)
        return self._replay()


class EncoderGraphs:
    """Runs the encoder. A shape is captured when it comes for the second time; the oldest make room.

    Where a capture fails, all runs are eager from then on: `failure` says why.
    """

    def __init__(self, module: nn.Module, device: torch.device, *, graphs: bool = True) -> None:
        self._module = module
        self._recorder = GraphRecorder(device) if graphs and device.type == "cuda" else None
        self._graphs: OrderedDict[Key, EncoderGraph | None] = OrderedDict()
        self.failure: str | None = None

    def run(self, tensors: Tensors) -> Tensor:
        """The module's rows for collated inputs. The caller copies them before it runs again."""
        graph = self._find(tensors)
        return self._module(**tensors) if graph is None else graph.run(tensors)

    def _find(self, tensors: Tensors) -> EncoderGraph | None:
        small = sum(tensor.nbytes for tensor in tensors.values()) <= MOST_BYTES
        if self._recorder is None or self.failure is not None or not small:
            return None
        key = tuple((name, tensor.shape) for name, tensor in sorted(tensors.items()))
        if key in self._graphs and self._graphs[key] is None:
            self._graphs[key] = self._capture(tensors, self._recorder)
        graph = self._graphs.setdefault(key, None)
        self._graphs.move_to_end(key)
        if len(self._graphs) > MOST_GRAPHS:
            self._graphs.popitem(last=False)
        return graph

    def _capture(self, tensors: Tensors, recorder: GraphRecorder) -> EncoderGraph | None:
        try:
            return EncoderGraph(self._module, tensors, recorder)
        except Exception as error:  # whatever stops a capture, an eager run does the same work
            self.failure = f"{type(error).__name__}: {error}"
            logger.warning("the encoder runs without CUDA graphs: %s", self.failure)
            return None
