"""Executes a `SchedulerOutput`: encode, write cross-KV, merge, forward, sample. It waits for nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mmcore.adapter import Adapter
from mmcore.core.output import SchedulerOutput
from mmcore.errors import EncoderOutputError, MMCoreError, RequestError
from mmcore.kernels.copy_blocks import copy_blocks
from mmcore.kernels.merge_embeddings import merge_embeddings
from mmcore.model.attention import AttentionMetadata, KVCache, Tail
from mmcore.model.weights import Model
from mmcore.request import EncoderInput, PreparedRequest, ReadyRows
from mmcore.runner.batch import BatchTable, MergeSlice, StepInputs, TableShape
from mmcore.runner.cuda_graph import DecodeGraphs
from mmcore.runner.decode_step import DecodeStep, LastTokens, Selected
from mmcore.runner.encoder_runner import EncodeJob, EncoderRunner
from mmcore.runner.pending import Check, Errors, PendingStep, SampledRows
from mmcore.runner.sampling_table import SampledTokens, SamplingTable
from mmcore.runner.transfer import send


class ModelRunner:
    """The device's side of the engine. One call of `submit` a step; it never calls back.

    ``graphs``: decode steps are captured and replayed, else each runs eagerly.
    """

    def __init__(
        self, adapter: Adapter, model: Model, kv: KVCache, shape: TableShape, *, graphs: bool = True
    ) -> None:
        self._adapter = adapter
        self._model = model
        self._kv = kv
        self.device = kv.key.device
        self._dtype = next(model.parameters()).dtype
        self._table = BatchTable(shape)
        self._last = LastTokens(shape.slots, self.device)
        self._encoder = EncoderRunner(adapter.encoder, model.encoder, self.device, self._dtype, graphs=graphs)
        self._sampling = SamplingTable(adapter, self.device)
        suppressed = adapter.decoding.defaults.suppress_ids
        self._decode = DecodeStep(model.decoder, kv, self._last, suppressed)
        self.graphs = self.make_graphs() if graphs else None

    def feed(self, request_id: str, item: int, data: EncoderInput) -> None:
        """Take a preprocessed item; it stays until `forget`."""
        self._encoder.feed(request_id, item, data)

    def forget(self, request: PreparedRequest) -> None:
        """The request has ended: drop its preprocessed items."""
        self._encoder.forget(request.request_id, len(request.items))

    def make_graphs(self) -> DecodeGraphs:
        """None of them captured yet."""
        return DecodeGraphs(self._decode, self._table.shape, self._last)

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Capture the decode graphs of a family without cross-attention; others come at first use."""
        if self.graphs is not None and not self._table.shape.cross:
            self.graphs.warm_up(cross_width=0)

    @torch.inference_mode()
    def submit(self, output: SchedulerOutput) -> PendingStep:
        """Queue one step behind those before it. A fault of one request is its own entry in ``errors``."""
        errors = self._admit(output)
        self._place(output)
        checks = [*self._encode(output, errors), *self._write_cross(output, errors)]
        if not output.row_slots:
            return PendingStep(output.step, 0, errors, checks)
        inputs = self._table.lay_out(output)
        tokens = self._run(inputs, errors)
        if tokens is None:
            return PendingStep(output.step, len(output.row_slots), errors, checks)
        for slot, error in tokens.errors.items():
            errors.setdefault(slot, error)
        requests = [self._table.request(slot) for slot in inputs.sample_slots.tolist()]
        places = self._table.reserve(tokens.decided(inputs.sample_slots))
        rows = SampledRows(inputs, tokens, requests, self._table, places)
        return PendingStep(output.step, len(output.row_slots), errors, checks, rows)

    # -------------------------------------------------------------- tables

    def _admit(self, output: SchedulerOutput) -> Errors:
        for slot in output.finished_slots:
            self._encoder.unbind(slot, len(self._table.request(slot).items))
            self._sampling.remove(slot)
            self._table.remove(slot)
        for slot in output.reset_slots:
            self._table.reset(slot)
        errors: Errors = {}
        for new in output.new_requests:
            self._table.add(new.slot, new.request)
            try:
                self._sampling.add(new.slot, new.sequence, new.request)
            except MMCoreError as error:
                errors[new.slot] = error
        if output.advance_slots:
            columns = (output.advance_slots, output.advance_sources, output.advance_ids)
            self._table.advance(*columns)
            self._sampling.advance(*columns)
        return errors

    def _place(self, output: SchedulerOutput) -> None:
        self._encoder.free(output.freed_entries)
        if output.copies:
            sources, targets = zip(*((copy.source, copy.target) for copy in output.copies), strict=True)
            columns = send({"sources": np.array(sources), "targets": np.array(targets)}, self.device)
            copy_blocks(self._kv.key, self._kv.value, columns["sources"], columns["targets"])
        self._table.place_blocks(output)
        for slot, item, entry in zip(output.bind_slots, output.bind_items, output.bind_entries, strict=True):
            self._encoder.bind(slot, item, entry)
        for slot, blocks in zip(output.cross_slots, output.cross_blocks, strict=True):
            cross = self._table.request(slot).cross
            assert cross is not None, "cross blocks for a request without cross states"
            self._table.place_cross_blocks(slot, blocks, cross.length)

    # -------------------------------------------------------------- encoder

    def _encode(self, output: SchedulerOutput, errors: Errors) -> list[Check]:
        """Adds errors known by now; the checks are of what the encoder gives."""
        if not output.encode_entries:
            return []
        columns = zip(output.encode_slots, output.encode_items, output.encode_entries, strict=True)
        result = self._encoder.encode([self._job(slot, item, entry) for slot, item, entry in columns])
        readers: dict[int, tuple[int, ...]] = {}
        for slot, entry in zip(output.bind_slots, output.bind_entries, strict=True):
            readers[entry] = (*readers.get(entry, ()), slot)
        for entry, error in result.failed.items():
            errors |= dict.fromkeys(readers.get(entry, ()), error)
        return [
            Check(holds, error, readers.get(entry, ())) for entry, (holds, error) in result.finite.items()
        ]

    def _job(self, slot: int, item: int, entry: int) -> EncodeJob:
        request = self._table.request(slot)
        prepared = request.items[item]
        label = f"{prepared.modality} {item + 1} of request {request.request_id}"
        ready = prepared.source if isinstance(prepared.source, ReadyRows) else None  # came with the request
        return EncodeJob(entry, label, prepared.plan, ready or self._encoder.input(request.request_id, item))

    def _write_cross(self, output: SchedulerOutput, errors: Errors) -> list[Check]:
        states: dict[int, Tensor] = {}
        for slot, write in zip(output.cross_slots, output.cross_writes, strict=True):
            if write and slot not in errors:
                try:
                    states[slot] = self._cross_states(slot)
                except MMCoreError as error:
                    errors[slot] = error
        if not states:
            return []
        mapping = np.concatenate([self._table.cross_slot_mapping(slot) for slot in states])
        together = torch.cat(list(states.values()))
        columns = send({"slots": mapping}, self.device)
        self._model.decoder.write_cross_kv(together, self._kv, columns["slots"])
        return [self._finite_states(slot, rows) for slot, rows in states.items()]

    def _finite_states(self, slot: int, states: Tensor) -> Check:
        """The scheduler lets nobody else read what is not finite."""
        name = self._table.request(slot).request_id
        error = EncoderOutputError(f"request {name}: the cross states are not finite in {states.dtype}")
        return Check(states.isfinite().all(), error, (slot,))

    def _cross_states(self, slot: int) -> Tensor:  # [cross length, cross width]
        request = self._table.request(slot)
        parts = [self._encoder.rows(slot, item) for item in range(len(request.items))]
        nothing = torch.empty(0, self._adapter.decoder.cross_width, dtype=self._dtype, device=self.device)
        rows = torch.cat([part for part in parts if part is not None] or [nothing])
        if self._model.context is None:
            return rows
        assert request.cross is not None
        try:
            text_ids = np.array(request.cross.text_ids, np.int64)
            states: Tensor = self._model.context(rows, send({"ids": text_ids}, self.device)["ids"])
        except torch.AcceleratorError:
            raise
        except (Exception, SystemExit) as error:  # a family's code fails its request alone
            raise RequestError(
                f"adapter {self._adapter.name!r} failed making cross states ({type(error).__name__})"
            ) from error
        return _checked_states(request, request.cross.length, states)

    # -------------------------------------------------------------- decoder

    def _run(self, inputs: StepInputs, errors: Errors) -> SampledTokens | None:
        """Forward and sample; None where no row samples."""
        selected = self.graphs.run(inputs) if self.graphs is not None else None
        if selected is None:
            selected = self._run_eagerly(inputs, errors)
        if selected is None or self._sampling.is_plain(inputs):
            return None if selected is None else SampledTokens(selected.token_ids, selected.chosen)
        tokens = self._sampling.sample(selected.logits.float(), inputs, self._table)
        self._last.store(selected.slots, tokens.token_ids)
        return tokens

    def _run_eagerly(self, inputs: StepInputs, errors: Errors) -> Selected | None:
        parts, positions = self._merged(inputs.merges, errors)
        columns = send(_columns(inputs) | {"merged": positions}, self.device)
        hidden = self._model.decoder.embed(self._last.resolve(columns["token_ids"]))
        if parts:
            merge_embeddings(hidden, torch.cat(parts), columns["merged"])
        meta = _metadata(columns, inputs.max_query_len)
        tail = None
        if 0 < len(inputs.sample_rows) < len(inputs.token_ids):
            tail = Tail.of(meta, columns["sample_rows"], columns["sample_tokens"])
        hidden = self._model.decoder(hidden, columns["positions"], self._kv, meta, tail)
        if not len(inputs.sample_rows):
            return None
        return self._decode.select(self._model.decoder.logits(hidden), columns["sample_slots"])

    def _merged(self, merges: Sequence[MergeSlice], errors: Errors) -> tuple[list[Tensor], NDArray[np.int64]]:
        """Rows to merge in, and where. Those of failed items are left out: nobody looks at their result."""
        parts: list[Tensor] = []
        places: list[range] = []
        for merge in merges:
            rows = self._encoder.rows(merge.slot, merge.item)
            if rows is None:
                assert merge.slot in errors, "a scheduled row's item is encoded in this step or cached"
                continue
            parts.append(rows[merge.row : merge.row + merge.length])
            places.append(range(merge.position, merge.position + merge.length))
        return parts, np.array(list(chain.from_iterable(places)), np.int64)


def _columns(inputs: StepInputs) -> dict[str, NDArray[Any]]:
    """What an eager step needs on the device."""
    names = ["token_ids", "positions", "slot_mapping", "query_starts", "context_lens", "block_tables"]
    names += ["sample_rows", "sample_tokens", "sample_slots"]
    if inputs.cross_block_tables is not None:
        names += ["cross_block_tables", "cross_lens"]
    return {name: getattr(inputs, name) for name in names}


def _metadata(columns: Mapping[str, Tensor], max_query_len: int) -> AttentionMetadata:
    return AttentionMetadata(
        block_tables=columns["block_tables"],
        query_starts=columns["query_starts"],
        context_lens=columns["context_lens"],
        slot_mapping=columns["slot_mapping"],
        max_query_len=max_query_len,
        cross_block_tables=columns.get("cross_block_tables"),
        cross_lens=columns.get("cross_lens"),
    )


def _checked_states(request: PreparedRequest, length: int, states: Tensor) -> Tensor:
    """What is not as planned never enters the cache."""
    if len(states) != length:
        raise EncoderOutputError(
            f"request {request.request_id}: the context stage gave {len(states)} cross states for {length} "
            "planned; the adapter's length() and module disagree"
        )
    return states
