"""From pool entries to what the model takes: flat patches, ids, axes, targets, and static layouts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from augment import Augmenter
from kinds import KINDS, Kind
from model import Segments, picture_places
from pool import Pools
from torch import Tensor
from vision import patch_positions

Picture = tuple[int, int]  # (kind number, slot within the row)


@dataclass(frozen=True)
class Batch:
    """One step's input. N patches, M = N / 4 picture tokens, K text tokens."""

    patches: Tensor  # bf16 [N, 588]
    ids: Tensor  # long [K]
    axes: Tensor  # uint8 [3, K]
    targets: Tensor  # long [K], -1 where nothing is asked
    destinations: Tensor  # long [M]: the text place of each picture token
    aux: Tensor  # long [M, 4]: character class of each column, -1 where there is none to learn


class Layout:
    """The order of pictures (by patches) and of rows (by length), and every static index."""

    def __init__(self, device: torch.device) -> None:
        pictures = [(k, s) for k, kind in enumerate(KINDS) for s in range(len(kind.shapes))]
        self.pictures: list[Picture] = sorted(pictures, key=lambda p: (_patches(p), KINDS[p[0]].shapes[p[1]]))
        self.order = sorted(range(len(KINDS)), key=lambda k: KINDS[k].length)
        counts = [(KINDS[k].rows, _patches((k, s))) for k, s in self.pictures]
        self.vision = Segments(_joined(counts))
        self.text = Segments(_joined([(KINDS[k].rows, KINDS[k].length) for k in self.order]))
        positions = []
        for k, s in self.pictures:
            height, width = KINDS[k].shapes[s]
            positions.append(torch.from_numpy(patch_positions(height, width)).repeat(1, KINDS[k].rows))
        self.positions = torch.cat(positions, 1).to(device)
        row_kind = torch.tensor([k for k in self.order for _ in range(KINDS[k].rows)])
        lengths = torch.tensor([KINDS[k].length for k in range(len(KINDS))])
        self.row_kind = row_kind.to(device)
        self.token_row = torch.repeat_interleave(torch.arange(len(row_kind)), lengths[row_kind]).to(device)
        drawn = torch.tensor([kind.drawn for kind in KINDS])
        self.token_drawn = drawn.to(device)[self.row_kind][self.token_row]  # [K]: belongs to a printed line
        self.kind_rows = torch.tensor([float(kind.rows) for kind in KINDS], device=device)


def _patches(picture: Picture) -> int:
    height, width = KINDS[picture[0]].shapes[picture[1]]
    return height * width // 196


def _joined(parts: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    joined: list[tuple[int, int]] = []
    for count, length in parts:
        if joined and joined[-1][1] == length:
            joined[-1] = (joined[-1][0] + count, length)
        else:
            joined.append((count, length))
    return tuple(joined)


def _slices(entry: Tensor, kind: Kind) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Entry bytes -> ids, targets (long [n, L]), axes (uint8 [n, 3, L]), the rest (uint8)."""
    n, length = entry.shape[0], kind.length
    ids = entry[:, : 2 * length].contiguous().view(torch.int16).long()
    targets = entry[:, 2 * length : 4 * length].contiguous().view(torch.int16).long()
    return ids, targets, entry[:, 4 * length : 7 * length].view(n, 3, length), entry[:, 7 * length :]


def make_batch(pools: Pools, layout: Layout, augmenter: Augmenter, shapes: Tensor) -> Batch:
    """Draws every kind's rows, colours the pictures and lays all of it out flat."""
    texts: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
    masks: dict[Picture, Tensor] = {}
    aux: dict[Picture, Tensor] = {}
    for k, kind in enumerate(KINDS):
        ids, targets, axes, rest = _slices(pools.rings[k].sample(kind.rows), kind)
        texts[k] = (ids, targets, axes)
        if kind.vqa:
            masks[k, 0] = shapes.index_select(0, rest[:, :4].contiguous().view(torch.int32).long()[:, 0])
            aux[k, 0] = torch.full((kind.rows, 4, 4), -1, device=rest.device)
        else:
            _split(k, kind, rest, masks, aux)
    patches = _paint(layout, augmenter, masks)
    destinations = _destinations(layout, texts)
    ids = torch.cat([texts[k][0].flatten() for k in layout.order])
    targets = torch.cat([texts[k][1].flatten() for k in layout.order])
    axes = torch.cat([texts[k][2].transpose(0, 1).flatten(1) for k in layout.order], 1)
    return Batch(
        patches, ids, axes, targets, destinations, torch.cat([aux[p].flatten(0, 1) for p in layout.pictures])
    )


def _split(
    k: int, kind: Kind, rest: Tensor, masks: dict[Picture, Tensor], aux: dict[Picture, Tensor]
) -> None:
    at = 0
    for s, (height, width) in enumerate(kind.shapes):
        tokens = height * width // 784
        aux[k, s] = rest[:, at : at + 4 * tokens].reshape(kind.rows, tokens, 4).long()
        at += 4 * tokens
    for s, (height, width) in enumerate(kind.shapes):
        masks[k, s] = rest[:, at : at + height * width].reshape(kind.rows, height, width)
        at += height * width


def _paint(layout: Layout, augmenter: Augmenter, masks: dict[Picture, Tensor]) -> Tensor:
    """Pictures of one shape are painted together, in the layout's order: [N, 588]."""
    groups: list[list[Picture]] = []
    for p in layout.pictures:
        same = groups and KINDS[groups[-1][0][0]].shapes[groups[-1][0][1]] == KINDS[p[0]].shapes[p[1]]
        if same and KINDS[groups[-1][0][0]].vqa == KINDS[p[0]].vqa:
            groups[-1].append(p)
        else:
            groups.append([p])
    painted = []
    for group in groups:
        stack = torch.cat([masks[p] for p in group])
        paint = augmenter.shapes if KINDS[group[0][0]].vqa else augmenter.lines
        painted.append(paint(stack).flatten(0, 1))
    return torch.cat(painted)


def _destinations(layout: Layout, texts: dict[int, tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """For each picture token, in the order of the patches, its place in the flat text: [M]."""
    places: dict[Picture, Tensor] = {}
    base = 0
    for k in layout.order:
        kind = KINDS[k]
        tokens = [h * w // 784 for h, w in kind.shapes]
        if tokens:
            ids = texts[k][0]
            rows = torch.arange(kind.rows, device=ids.device)[:, None] * kind.length + base
            found = torch.split(picture_places(ids, sum(tokens)) + rows, tokens, 1)
            places |= {(k, s): found[s] for s in range(len(tokens))}
        base += kind.rows * kind.length
    return torch.cat([places[p].flatten() for p in layout.pictures])
