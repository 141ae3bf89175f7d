"""Executes a `SchedulerOutput`: encode, write cross-KV, merge, forward, sample."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mmcore.adapter import Adapter
from mmcore.core.output import ModelRunnerOutput, SchedulerOutput
from mmcore.errors import EncoderOutputError, MMCoreError, RequestError
from mmcore.kernels.copy_blocks import copy_blocks
from mmcore.kernels.merge_embeddings import merge_embeddings
from mmcore.model.attention import AttentionMetadata, KVCache
from mmcore.model.weights import Model
from mmcore.request import EncoderInput, PreparedRequest, ReadyRows
from mmcore.runner.batch import BatchTable, MergeSlice, StepInputs, TableShape
from mmcore.runner.encoder_runner import EncodeJob, EncoderRunner
from mmcore.runner.sampling_table import SamplingTable

Errors = dict[int, MMCoreError]
"""By slot."""


class ModelRunner:
    """The device's side of the engine. One call of `execute` a step; it never calls back."""

    def __init__(self, adapter: Adapter, model: Model, kv: KVCache, shape: TableShape) -> None:
        self._adapter = adapter
        self._model = model
        self._kv = kv
        self._device = kv.key.device
        self._dtype = kv.key.dtype
        self._table = BatchTable(shape)
        self._encoder = EncoderRunner(adapter.encoder, model.encoder, self._device, self._dtype)
        self._sampling = SamplingTable(adapter, self._device)

    def feed(self, request_id: str, item: int, data: EncoderInput) -> None:
        """Take a preprocessed item; it stays until `forget`."""
        self._encoder.feed(request_id, item, data)

    def forget(self, request: PreparedRequest) -> None:
        """The request has ended: drop its preprocessed items."""
        self._encoder.forget(request.request_id, len(request.items))

    @torch.inference_mode()
    def execute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        """Run one step. A fault of one request is its own entry in ``errors``."""
        errors = self._admit(output)
        self._place(output)
        errors |= self._encode(output)
        self._write_cross(output, errors)
        if not output.row_slots:
            return ModelRunnerOutput(step=output.step, errors=errors)
        inputs = self._table.lay_out(output)
        hidden = self._forward(inputs, errors)
        return self._sample(output, inputs, hidden, errors)

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
        return errors

    def _place(self, output: SchedulerOutput) -> None:
        self._encoder.free(output.freed_entries)
        if output.copies:
            sources, targets = zip(*((copy.source, copy.target) for copy in output.copies), strict=True)
            copy_blocks(self._kv.key, self._kv.value, self._int64(sources), self._int64(targets))
        self._table.place_blocks(output)
        for slot, item, entry in zip(output.bind_slots, output.bind_items, output.bind_entries, strict=True):
            self._encoder.bind(slot, item, entry)
        for slot, blocks in zip(output.cross_slots, output.cross_blocks, strict=True):
            cross = self._table.request(slot).cross
            assert cross is not None, "cross blocks for a request without cross states"
            self._table.place_cross_blocks(slot, blocks, cross.length)

    # -------------------------------------------------------------- encoder

    def _encode(self, output: SchedulerOutput) -> Errors:
        if not output.encode_entries:
            return {}
        failed = self._encoder.encode(
            [
                self._job(slot, item, entry)
                for slot, item, entry in zip(
                    output.encode_slots, output.encode_items, output.encode_entries, strict=True
                )
            ]
        )
        bound = zip(output.bind_slots, output.bind_entries, strict=True)
        return {slot: failed[entry] for slot, entry in bound if entry in failed}

    def _job(self, slot: int, item: int, entry: int) -> EncodeJob:
        request = self._table.request(slot)
        prepared = request.items[item]
        label = f"{prepared.modality} {item + 1} of request {request.request_id}"
        ready = prepared.source if isinstance(prepared.source, ReadyRows) else None  # came with the request
        return EncodeJob(entry, label, prepared.plan, ready or self._encoder.input(request.request_id, item))

    def _write_cross(self, output: SchedulerOutput, errors: Errors) -> None:
        states: dict[int, Tensor] = {}
        for slot, write in zip(output.cross_slots, output.cross_writes, strict=True):
            if write and slot not in errors:
                try:
                    states[slot] = self._cross_states(slot)
                except MMCoreError as error:
                    errors[slot] = error
        if not states:
            return
        mapping = torch.cat([torch.from_numpy(self._table.cross_slot_mapping(slot)) for slot in states])
        together = torch.cat(list(states.values()))
        self._model.decoder.write_cross_kv(together, self._kv, mapping.to(self._device))

    def _cross_states(self, slot: int) -> Tensor:  # [cross length, cross width]
        request = self._table.request(slot)
        parts = [self._encoder.rows(slot, item) for item in range(len(request.items))]
        rows = torch.cat([part for part in parts if part is not None])
        if self._model.context is None:
            return rows
        assert request.cross is not None
        try:
            states: Tensor = self._model.context(rows, self._int64(request.cross.text_ids))
        except torch.AcceleratorError:
            raise
        except (Exception, SystemExit) as error:  # a family's code fails its request alone
            raise RequestError(
                f"adapter {self._adapter.name!r} failed making cross states ({type(error).__name__})"
            ) from error
        return _checked_states(request, request.cross.length, states)

    # -------------------------------------------------------------- decoder

    def _forward(self, inputs: StepInputs, errors: Errors) -> Tensor:  # [T, H]
        hidden = self._model.decoder.embed(self._to_device(inputs.token_ids))
        self._merge(hidden, inputs.merges, errors)
        positions = self._to_device(inputs.positions)
        final: Tensor = self._model.decoder(hidden, positions, self._kv, self._metadata(inputs))
        return final

    def _merge(self, hidden: Tensor, merges: Sequence[MergeSlice], errors: Errors) -> None:
        """Rows of failed items are left out: their request's result is dropped anyway."""
        parts: list[Tensor] = []
        positions: list[int] = []
        for merge in merges:
            rows = self._encoder.rows(merge.slot, merge.item)
            if rows is None:
                assert merge.slot in errors, "a scheduled row's item is encoded in this step or cached"
                continue
            parts.append(rows[merge.row : merge.row + merge.length])
            positions.extend(range(merge.position, merge.position + merge.length))
        if parts:
            merge_embeddings(hidden, torch.cat(parts), self._int64(positions))

    def _metadata(self, inputs: StepInputs) -> AttentionMetadata:
        cross = inputs.cross_block_tables
        return AttentionMetadata(
            block_tables=self._to_device(inputs.block_tables),
            query_starts=self._to_device(inputs.query_starts),
            context_lens=self._to_device(inputs.context_lens),
            slot_mapping=self._to_device(inputs.slot_mapping),
            max_query_len=inputs.max_query_len,
            cross_block_tables=None if cross is None else self._to_device(cross),
            cross_lens=None if inputs.cross_lens is None else self._to_device(inputs.cross_lens),
        )

    # -------------------------------------------------------------- sampling

    def _sample(
        self, output: SchedulerOutput, inputs: StepInputs, hidden: Tensor, errors: Errors
    ) -> ModelRunnerOutput:
        counts = [0] * len(output.row_slots)
        if not len(inputs.sample_rows):
            return ModelRunnerOutput(step=output.step, token_counts=counts, errors=errors)
        logits = self._model.decoder.logits(hidden[self._to_device(inputs.sample_tokens)])
        sampled = self._sampling.sample(logits, inputs, self._table)
        self._table.append(inputs.sample_slots, sampled.token_ids)
        for slot, error in sampled.errors.items():
            errors.setdefault(slot, error)
        for slot in inputs.sample_slots[~sampled.finite].tolist():
            errors.setdefault(slot, _not_finite(self._table.request(slot), self._dtype))
        kept = [slot not in errors for slot in inputs.sample_slots.tolist()]
        for row, keep in zip(inputs.sample_rows.tolist(), kept, strict=True):
            counts[row] = int(keep)
        return ModelRunnerOutput(
            step=output.step,
            token_counts=counts,
            token_ids=sampled.token_ids[kept].tolist(),
            logprobs=self._sampling.scores(inputs, sampled),
            errors=errors,
        )

    def _to_device(self, array: object) -> Tensor:
        return torch.as_tensor(array).to(self._device)

    def _int64(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._device)


def _checked_states(request: PreparedRequest, length: int, states: Tensor) -> Tensor:
    """What is not as planned never enters the cache."""
    if len(states) != length:
        raise EncoderOutputError(
            f"request {request.request_id}: the context stage gave {len(states)} cross states for {length} "
            "planned; the adapter's length() and module disagree"
        )
    if not bool(states.isfinite().all()):
        raise EncoderOutputError(
            f"request {request.request_id}: the cross states are not finite in {states.dtype}"
        )
    return states


def _not_finite(request: PreparedRequest, dtype: torch.dtype) -> RequestError:
    return RequestError(
        f"request {request.request_id}: the logits are not finite in {dtype}; try dtype='float32'"
    )
