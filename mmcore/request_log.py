"""What the log says of requests. The library shows nothing by itself: who wants the log adds a handler.

Each record carries the request's id as ``request_id``.
"""

from __future__ import annotations

import logging

from mmcore.request import RequestOutput

logging.getLogger("mmcore").addHandler(logging.NullHandler())
_logger = logging.getLogger(__name__)


def log_received(request_id: str) -> None:
    _logger.debug("received", extra={"request_id": request_id})


def log_finished(output: RequestOutput) -> None:
    """One line: how it ended, and what it cost."""
    if not _logger.isEnabledFor(logging.INFO):
        return
    who = {"request_id": output.request_id}
    if output.error is not None:
        _logger.info("failed (%s): %s", output.error.code, output.error, extra=who)
        return
    times = output.timings
    _logger.info(
        "finished (%s): %d tokens in %.3f s, the first after %.3f s; %d of %d prompt tokens cached, "
        "%d items encoded",
        ", ".join(str(sequence.finish_reason) for sequence in output.outputs),
        sum(len(sequence.token_ids) for sequence in output.outputs),
        max(times.finished - times.arrived, 0.0),
        max(times.first_token - times.arrived, 0.0),
        output.cached_tokens,
        len(output.prompt_token_ids),
        output.encoded_items,
        extra=who,
    )
