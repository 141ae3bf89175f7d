"""The kinds of training row: which picture shapes, how long a row, how many rows a step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """Rows of one fixed shape. `shapes` are (height, width) in pixels of the row's pictures."""

    name: str
    shapes: tuple[tuple[int, int], ...]
    length: int
    rows: int
    vqa: bool = False
    turns: int = 1

    @property
    def drawn(self) -> bool:
        """True if the row's pictures are drawn as glyph masks."""
        return bool(self.shapes) and not self.vqa

    def entry_bytes(self) -> int:
        """Bytes of one packed entry: ids, targets, axes, aux classes, masks or picture number."""
        text = self.length * (2 + 2 + 3)
        if self.vqa:
            return text + 4
        return text + sum(h * w // 784 * 4 + h * w for h, w in self.shapes)


KINDS: tuple[Kind, ...] = (
    Kind("w56x448", ((56, 448),), 152, 96),
    Kind("w84x336", ((84, 336),), 152, 56),
    Kind("w56x224", ((56, 224),), 136, 48),
    Kind("w28x448", ((28, 448),), 136, 56),
    Kind("p224x224", ((224, 224),), 208, 40),
    Kind("w112x224", ((112, 224),), 168, 32),
    Kind("s112x56", ((112, 56),), 120, 32),
    Kind("s56x112", ((56, 112),), 120, 32),
    Kind("w28x224", ((28, 224),), 128, 16),
    Kind("s112x112", ((112, 112),), 136, 16),
    Kind("w56x336", ((56, 336),), 144, 24),
    Kind("w84x224", ((84, 224),), 144, 16),
    Kind("w84x448", ((84, 448),), 168, 16),
    Kind("p112x336", ((112, 336),), 184, 16),
    Kind("t448x28", ((448, 28),), 136, 16),
    Kind("t224x56", ((224, 56),), 136, 8),
    Kind("vqa", ((56, 56),), 112, 128, vqa=True),
    Kind("vqa_turns", ((56, 56),), 184, 16, vqa=True, turns=2),
    Kind("turns", ((56, 448),), 224, 16, turns=2),
    Kind("pair_s", ((56, 224), (56, 224)), 192, 24),
    Kind("pair_l", ((56, 448), (84, 336)), 224, 16),
    Kind("pair_m", ((28, 448), (56, 448)), 224, 16),
    Kind("pair_q", ((112, 112), (56, 224)), 192, 12),
    Kind("pair_w", ((56, 448), (56, 448)), 224, 16),
    Kind("pair_p", ((224, 224), (112, 224)), 224, 8),
    Kind("text", (), 96, 8),
)
