"""The context stage as data: T5's encoder over a picture's rows and the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mmcore.decoder_config import DecoderConfig
from mmcore.errors import ContextLengthError, PromptError
from mmcore.request import ItemPlan

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEncoder:
    """``max_text`` tokens of a prompt at most: what T5 was trained with."""

    decoder: DecoderConfig
    """Its sizes are the encoder's too, its embedding is shared."""
    layers: int
    max_text: int

    def length(self, plans: Sequence[ItemPlan], text_ids: Sequence[int]) -> int:
        if len(text_ids) > self.max_text:
            raise ContextLengthError(
                f"the prompt has {len(text_ids)} tokens; its encoder reads {self.max_text}: shorten it"
            )
        unknown = [token for token in text_ids if not 0 <= token < self.decoder.vocab_size]
        if unknown:
            raise PromptError(
                f"token {unknown[0]} is not in the vocabulary of {self.decoder.vocab_size} tokens"
            )
        return sum(plan.rows for plan in plans) + len(text_ids)

    def work(self, length: int) -> int:
        """Two operations a weight and token, and attention's two products."""
        config = self.decoder
        inner, width = config.num_heads * config.head_dim, config.hidden_size
        token = 4 * width * inner + 3 * width * config.intermediate_size + 2 * length * inner
        return 2 * length * self.layers * token

    def build(self) -> nn.Module:
        from mmcore.model.biased_encoder import BiasedEncoder

        return BiasedEncoder(self.decoder, self.layers)
