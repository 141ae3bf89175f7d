"""Put encoder rows where the prompt's placeholders are."""

from __future__ import annotations

from torch import Tensor

from mmcore.errors import EngineError


def merge_embeddings_reference(hidden: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
    """Row by row."""
    for row, position in enumerate(positions.tolist()):
        hidden[position] = rows[row].to(hidden.dtype)
    return hidden


def merge_embeddings(hidden: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
    """Overwrite ``hidden`` [T, H] at ``positions`` [R] int64 with ``rows`` [R, H]; returns ``hidden``.

    In place. Positions are distinct; rows are cast to the dtype of ``hidden``. Raises EngineError on shapes
    that don't fit.
    """
    if rows.shape != (positions.shape[0], hidden.shape[1]):
        raise EngineError(
            f"merge_embeddings: rows {tuple(rows.shape)} for {positions.shape[0]} positions "
            f"of width {hidden.shape[1]}"
        )
    return hidden.index_copy_(0, positions, rows.to(hidden.dtype))
