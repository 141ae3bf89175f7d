"""Pickles: what crosses to a worker process arrives there, and means the same."""

from __future__ import annotations

import pickle

from mmcore.adapter import Adapter
from mmcore.inputs.framing import hash_values
from mmcore.request import PreparedRequest
from mmcore.testing.law import law
from mmcore.testing.samples import Ask, asks
from mmcore.testing.subject import Subject


def digest_of(adapter: Adapter, request: PreparedRequest) -> bytes:
    """Over what keys are made of, and the prompt."""
    keys = [(item.processor_key, item.encoder_key, item.plan, item.options) for item in request.items]
    values = request.positions.values if request.positions else None
    spans = [(span.offset, span.length, span.item, span.row) for span in request.ranges]
    return hash_values("pickled", adapter.inputs, adapter.encoder, request.token_ids, spans, keys, values)


def digest_there(data: bytes) -> bytes:
    """Runs in a worker."""
    return digest_of(*pickle.loads(data))


@law(needs=("ranges_use_each_row_once",), cost=4, ask=asks)
def adapter_and_requests_pickle(subject: Subject, ask: Ask) -> None:
    """An adapter and a prepared request are the same in another process."""
    request = subject.prepared(ask)
    data = pickle.dumps((subject.adapter, request))
    there = subject.worker.submit(digest_there, data).result()
    assert there == digest_of(subject.adapter, request), "the worker has another adapter or request"
