"""Put encoder rows where the prompt's placeholders are."""

from __future__ import annotations

from torch import Tensor

from mmcore.errors import EngineError
from mmcore.kernels.dispatch import use_triton


def merge_embeddings_reference(hidden: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
    """Row by row."""
    for row, position in enumerate(positions.tolist()):
        if position >= 0:
            hidden[position] = rows[row].to(hidden.dtype)
    return hidden


def merge_embeddings(hidden: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
    """Overwrite ``hidden`` [T, H] at ``positions`` [R] int64 with ``rows`` [R, H]; returns ``hidden``.

    In place. Positions are distinct; a negative one is not written (padding of a captured graph). Rows are
    cast to the dtype of ``hidden``. Raises EngineError on shapes that don't fit.
    """
    if rows.shape != (positions.shape[0], hidden.shape[1]):
        raise EngineError(
            f"merge_embeddings: rows {tuple(rows.shape)} for {positions.shape[0]} positions "
            f"of width {hidden.shape[1]}"
        )
    if use_triton(hidden):
        from mmcore.kernels.merge_embeddings_triton import merge_embeddings_triton

        return merge_embeddings_triton(hidden, rows, positions)
    if positions.numel() and int(positions.min()) < 0:
        rows, positions = rows[positions >= 0], positions[positions >= 0]
    return hidden.index_copy_(0, positions, rows.to(hidden.dtype))
