"""Whisper's links on paper: the language first, then each window; a poor window again at a temperature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paper.toys import Listener

from mmcore.adapter import FollowUp, Generation
from mmcore.inputs.decoding import PlainDecoding
from mmcore.request import PreparedRequest, Result

WINDOW = 32_000


@dataclass(frozen=True)
class Decoding(PlainDecoding):
    task: int = field(kw_only=True)

    def prefix(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        known = (options["language"], self.task + options.get("task", 0)) if "language" in options else ()
        return (*self.decoder_prefix, *known)

    def stop_rule(self, request: PreparedRequest) -> Listener:
        return Listener(lambda logits: request.num_tokens == 1)

    def finish(self, generation: Generation) -> Result:
        before, request = generation.previous or Result(""), generation.request
        if request.num_tokens == 1:
            return Result("", (("language", generation.ids[0]),))
        if not request.sampling.temperature and sum(generation.logprobs) < -len(generation.ids):
            return Result(before.text, (("poor", True),))
        return Result(before.text + generation.text)

    def follow_up(self, request: PreparedRequest, result: Result) -> FollowUp | None:
        fields, (start, total) = dict(result.fields), request.items[0].plan.geometry
        if "language" in fields:
            return FollowUp(token_ids=self.prefix(dict(request.decoder_options) | fields))
        if "poor" in fields:
            return FollowUp(sampling=request.sampling.model_copy(update={"temperature": 0.4}))
        again = request.sampling.model_copy(update={"temperature": None})
        return FollowUp(options={"start": start + WINDOW}, sampling=again) if start + WINDOW < total else None
