"""Tokens, items and what the caller said, put together to a `PreparedRequest`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mmcore.adapter import Adapter, Fusion, Layout
from mmcore.errors import ContextLengthError, InputError, PluginError, PromptError, plugin_code
from mmcore.inputs.hashing import context_key, root_key
from mmcore.inputs.layout import TokenLayout, check_ranges
from mmcore.request import CrossStates, ItemPlan, PreparedItem, PreparedRequest, ReadyRows, TokenPositions
from mmcore.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """What a request has beside its tokens and media."""

    request_id: str
    sampling: SamplingParams
    priority: int = 0
    salt: str = ""
    decoder_options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RequestAssembler:
    """``max_length`` counts the tokens of prompt and answer together."""

    adapter: Adapter
    checkpoint_digest: bytes
    kv_dtype: str
    max_length: int

    def assemble(
        self,
        facts: RequestFacts,
        layout: TokenLayout,
        items: tuple[PreparedItem, ...],
        text_ids: Sequence[int] = (),
    ) -> PreparedRequest:
        """Raises `PromptError`, `ContextLengthError`, `PluginError`."""
        self._check_tokens(layout)
        root = root_key(self.checkpoint_digest, self.kv_dtype, salt=facts.salt)
        cross = None
        if self.adapter.fusion is Fusion.CROSS_ATTENTION:
            cross = self._cross(root, items, tuple(text_ids))
            root = root_key(self.checkpoint_digest, self.kv_dtype, salt=facts.salt, cross=cross.key)
        return PreparedRequest(
            request_id=facts.request_id,
            token_ids=layout.token_ids,
            sampling=facts.sampling,
            root_key=root,
            items=items,
            ranges=layout.ranges,
            positions=self._positions(layout, items),
            cross=cross,
            decoder_options=tuple(sorted(facts.decoder_options.items())),
            salt=facts.salt,
            priority=facts.priority,
        )

    def check(self, request: PreparedRequest) -> None:
        """Raises an `InputError` where a prepared request is not one for this checkpoint and dtype."""
        key = request.cross.key if request.cross else None
        is_cross = self.adapter.fusion is Fusion.CROSS_ATTENTION
        root = root_key(self.checkpoint_digest, self.kv_dtype, salt=request.salt, cross=key)
        if root != request.root_key or is_cross is (key is None):
            raise InputError(
                "this request was prepared for another checkpoint or dtype; prepare it with preprocess() of "
                "the LLM that is to answer it, or of one of the same model"
            )
        layout = TokenLayout(request.token_ids, request.ranges)
        self._check_tokens(layout)
        check_ranges(layout, [item.plan for item in request.items])
        self._check_positions(request)
        for number, item in enumerate(request.items, start=1):
            if isinstance(item.source, ReadyRows):
                _check_rows(f"item {number} ({item.modality})", item.source.rows, item.plan)

    def _check_positions(self, request: PreparedRequest) -> None:
        wanted = None
        if self.adapter.positions is not None:
            wanted = (getattr(self.adapter.decoder.positions, "axes", 1), request.num_tokens)
        shape = None if request.positions is None else request.positions.values.shape
        if shape != wanted:
            raise InputError(f"the request's positions are {shape}, not {wanted}; prepare it again")

    def _cross(self, root: bytes, items: tuple[PreparedItem, ...], text_ids: tuple[int, ...]) -> CrossStates:
        plans, stage = [item.plan for item in items], self.adapter.context
        with plugin_code(self.adapter.name, "laying out cross states"):
            length = sum(plan.rows for plan in plans) if stage is None else stage.length(plans, text_ids)
            work = 0 if stage is None else stage.work(length)
        if length < 1:
            raise PromptError("there is nothing to attend to: the prompt brings neither media nor text")
        key = context_key(root, [item.encoder_key for item in items], text_ids, stage)
        return CrossStates(key, length, text_ids, work)

    def _positions(self, layout: TokenLayout, items: tuple[PreparedItem, ...]) -> TokenPositions | None:
        if self.adapter.positions is None:
            return None
        count = len(layout.token_ids)
        whole = Layout(
            count, layout.ranges, tuple(item.plan for item in items), tuple(item.modality for item in items)
        )
        with plugin_code(self.adapter.name, "placing tokens"):
            positions = self.adapter.positions(whole)
        if positions.values.ndim != 2 or positions.values.shape[1] != count:
            raise PluginError(
                f"adapter {self.adapter.name!r} gave positions {positions.values.shape} for {count} tokens"
            )
        return replace(positions, values=positions.values.astype(np.int32, copy=False))

    def _check_tokens(self, layout: TokenLayout) -> None:
        ids, vocabulary = layout.token_ids, self.adapter.decoder.vocab_size
        if not ids:
            raise PromptError("the prompt is empty: it has no tokens")
        if len(ids) >= self.max_length:
            raise ContextLengthError(
                f"the prompt has {len(ids)} tokens and must leave room for an answer; "
                f"this model's context is {self.max_length}: shorten it, or shrink its media"
            )
        distinct = set(ids)
        if min(distinct) >= 0 and max(distinct) < vocabulary:
            return
        rows = {i for r in layout.ranges for i in range(r.offset, r.offset + r.length)}
        for position, token in enumerate(ids):
            if not 0 <= token < vocabulary and position not in rows:
                raise PromptError(
                    f"token {token} at position {position} is not in the vocabulary of {vocabulary} tokens"
                )


def _check_rows(name: str, rows: np.ndarray, plan: ItemPlan) -> None:
    """Rows that were encoded elsewhere are what the item's plan says."""
    if rows.shape != (plan.rows, plan.width) or not np.issubdtype(rows.dtype, np.floating):
        raise InputError(
            f"{name} brings rows {rows.shape} of {rows.dtype}; its plan is {plan.rows} rows of {plan.width} "
            "floats: encode it with the same model and options"
        )
