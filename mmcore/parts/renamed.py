"""Weight rules where a tensor only changes its name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mmcore.adapter import WeightRule


def renamed(
    source: str, target: str, names: Mapping[str, str], leaves: tuple[str, ...]
) -> Iterator[WeightRule]:
    """``{source}{name}.{leaf}`` fills ``{target}{part}.{leaf}``, for each name and leaf."""
    for name, part in names.items():
        for leaf in leaves:
            yield WeightRule(f"{source}{name}.{leaf}", f"{target}{part}.{leaf}")
