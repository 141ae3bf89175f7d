"""The decoder's logits against transformers, over a paged cache laid out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mmcore.model.attention import AttentionMetadata, KVCache

BLOCK = 4
BLOCKS = 128


def empty_cache(tiny: Any) -> KVCache:
    config = tiny.adapter.decoder
    shape = (config.num_layers, BLOCKS, BLOCK, config.num_kv_heads, config.head_dim)
    return KVCache(torch.full(shape, torch.nan), torch.full(shape, torch.nan))


def slots(blocks: list[int], count: int) -> Tensor:
    """Cache slots of the first ``count`` positions of a block table, int64."""
    return torch.tensor([blocks[i // BLOCK] * BLOCK + i % BLOCK for i in range(count)])


def features(tiny: Any, items: int, seed: int) -> Tensor:
    shape = (items, tiny.adapter.encoder.mels, 2 * tiny.adapter.encoder.rows)
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Largest over the rows of max |a - b| / max |b|."""
    return float(((found - expected).abs().amax(-1) / expected.abs().amax(-1)).max())


class PagedRows:
    """Two recordings and their decoder sequences in one cache, blocks interleaved and out of order."""

    def __init__(self, tiny: Any) -> None:
        self.tiny, self.kv = tiny, empty_cache(tiny)
        self.states_seen = rows = tiny.adapter.encoder.rows
        per_item = -(-rows // BLOCK)
        order = np.random.default_rng(0).permutation(BLOCKS).tolist()
        self.cross = [order[:per_item], order[per_item : 2 * per_item]]
        self.own = [order[-16:], order[-32:-16]]
        self.features = features(tiny, 2, seed=1)
        states = tiny.model.encoder(self.features).unflatten(0, (2, rows))
        for item_states, table in zip(states, self.cross, strict=True):
            tiny.model.decoder.write_cross_kv(item_states, self.kv, slots(table, rows))

    def step(self, ids: list[list[int]], starts: list[int]) -> Tensor:
        """Compute ``ids[r]`` at positions from ``starts[r]``; logits of all tokens."""
        counts = [len(row) for row in ids]
        ends = [start + count for start, count in zip(starts, counts, strict=True)]
        positions = torch.cat([torch.arange(s, e) for s, e in zip(starts, ends, strict=True)])
        written = [
            slots(table, end)[start:] for table, start, end in zip(self.own, starts, ends, strict=True)
        ]
        meta = AttentionMetadata(
            block_tables=torch.tensor(self.own, dtype=torch.int32),
            query_starts=torch.tensor([0, counts[0], sum(counts)], dtype=torch.int32),
            context_lens=torch.tensor(ends, dtype=torch.int32),
            slot_mapping=torch.cat(written),
            max_query_len=max(counts),
            cross_block_tables=torch.tensor(self.cross, dtype=torch.int32),
            cross_lens=torch.full((2,), self.states_seen, dtype=torch.int32),
        )
        decoder = self.tiny.model.decoder
        hidden = decoder.embed(torch.tensor([token for row in ids for token in row]))
        logits: Tensor = decoder.logits(decoder(hidden, positions[None], self.kv, meta))
        return logits


@pytest.mark.parametrize("cut", [1, 3, 7])
def test_logits_equal_the_reference_in_any_cut(tiny: Any, cut: int) -> None:
    rng = np.random.default_rng(cut)
    vocabulary = tiny.adapter.decoder.vocab_size
    ids = [rng.integers(0, vocabulary, length).tolist() for length in (20, 13)]
    with torch.no_grad():
        paged = PagedRows(tiny)
        first = paged.step([row[:cut] for row in ids], [0, 0])
        rest = paged.step([row[cut:] for row in ids], [cut, cut])
        for row, tokens in enumerate(ids):
            expected = tiny.reference(
                input_features=paged.features[row : row + 1], decoder_input_ids=torch.tensor([tokens])
            ).logits[0]
            found = torch.cat(
                [first[row * cut :][:cut], rest[row * (len(ids[0]) - cut) :][: len(tokens) - cut]]
            )
            assert relative_error(found, expected) <= 1e-5


def test_logits_depend_on_the_recording(tiny: Any) -> None:
    with torch.no_grad():
        logits = PagedRows(tiny).step([[3, 4], [3, 4]], [0, 0])
    assert relative_error(logits[:2], logits[2:]) > 0.05


def _one_state_short(paged: PagedRows) -> None:
    paged.states_seen -= 1


def _last_block_of_the_other(paged: PagedRows) -> None:
    paged.cross[0][-1] = paged.cross[1][-1]


def _cross_tables_swapped(paged: PagedRows) -> None:
    paged.cross.reverse()


@pytest.mark.parametrize("fault", [_one_state_short, _last_block_of_the_other, _cross_tables_swapped])
def test_a_fault_in_the_cross_states_shows(tiny: Any, fault: Callable[[PagedRows], None]) -> None:
    """The bound of parity, 1e-4, is far below what a small fault does."""
    with torch.no_grad():
        right, wrong = PagedRows(tiny), PagedRows(tiny)
        fault(wrong)
        ids = [[3, 4, 5], [6, 7, 8]]
        assert relative_error(wrong.step(ids, [0, 0])[:3], right.step(ids, [0, 0])[:3]) > 1e-3
