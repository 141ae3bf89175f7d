"""From token ids to text: detokenising, stop strings, family stop rules, `RequestOutput`s."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from mmcore.adapter import Decoding, Generation, StopRule, Tokenizer
from mmcore.core.output import TokenLogprobs
from mmcore.errors import MMCoreError
from mmcore.inputs.tokenizer import IncrementalDecoder
from mmcore.request import (
    CompletionOutput,
    FinishReason,
    PreparedRequest,
    RequestOutput,
    RequestTimings,
    Result,
)
from mmcore.sampling_params import SamplingParams


@dataclass(slots=True)
class SequenceText:
    """One sequence's tokens and text so far."""

    decoder: IncrementalDecoder
    stop_rule: StopRule | None
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    num_decoded: int = 0
    logits: list[float] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    result: Result | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None

    def decode(self) -> str:
        """Text of all ids so far; ids are decoded when somebody looks, not one by one."""
        if self.num_decoded < len(self.token_ids):
            self.text += self.decoder.push(self.token_ids[self.num_decoded :])
            self.num_decoded = len(self.token_ids)
        return self.text


@dataclass(slots=True)
class RequestState:
    """One request's sequences, on their way to a `RequestOutput`."""

    prepared: PreparedRequest
    sequences: list[SequenceText]
    timings: RequestTimings
    cached_tokens: int = 0
    encoded_items: int = 0
    error: MMCoreError | None = None
    previous: Result | None = None

    @property
    def finished(self) -> bool:
        return self.error is not None or all(s.finish_reason is not None for s in self.sequences)


class OutputProcessor:
    """Turns generated ids into outputs; says when a stop string or a family's rule ends a sequence."""

    def __init__(self, decoding: Decoding, tokenizer: Tokenizer) -> None:
        self._decoding = decoding
        self._tokenizer = tokenizer
        self._states: dict[str, RequestState] = {}

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._states

    def __len__(self) -> int:
        return len(self._states)

    @property
    def request_ids(self) -> tuple[str, ...]:
        return tuple(self._states)

    def add(self, prepared: PreparedRequest, timings: RequestTimings, previous: Result | None = None) -> None:
        """Take a request; ``previous`` is what the earlier links of its chain came to."""
        params = prepared.sampling
        self._states[prepared.request_id] = RequestState(
            prepared=prepared,
            sequences=[
                SequenceText(
                    IncrementalDecoder(self._tokenizer, skip_special_tokens=params.skip_special_tokens),
                    self._decoding.stop_rule(prepared),
                )
                for _ in range(params.n)
            ],
            timings=timings,
            previous=previous,
        )

    def state(self, request_id: str) -> RequestState:
        return self._states[request_id]

    def pop(self, request_id: str) -> RequestState:
        return self._states.pop(request_id)

    def extend(
        self, request_id: str, sequence: int, token_ids: Sequence[int], scores: Sequence[TokenLogprobs]
    ) -> str | None:
        """Append generated ids. Returns the stop string, or the name of the family's rule, that ends them.

        ``scores`` are those of ``token_ids``; they may be empty where the family has no stop rule.
        """
        state = self._states[request_id]
        target = state.sequences[sequence]
        target.token_ids.extend(token_ids)
        if target.stop_rule is not None and _observe(target, token_ids, scores):
            return "stop_rule"
        params = state.prepared.sampling
        return _cut_at_stop_string(params, target) if params.stop else None

    def end(
        self, request_id: str, sequence: int, reason: FinishReason, stop_reason: int | str | None = None
    ) -> None:
        """Close one sequence; a stop id it ended with is in ``token_ids`` and not in the text."""
        state = self._states[request_id]
        target = state.sequences[sequence]
        if target.finish_reason is not None:
            return
        target.finish_reason, target.stop_reason = reason, stop_reason
        if isinstance(stop_reason, int):
            target.text = self._text_without_stop_id(state.prepared.sampling, target)
        elif stop_reason not in state.prepared.sampling.stop:
            target.text = target.decode() + target.decoder.flush()
        target.result = self._decoding.finish(_generation(state, target))

    def _text_without_stop_id(self, params: SamplingParams, target: SequenceText) -> str:
        ids = target.token_ids if params.include_stop_str_in_output else target.token_ids[:-1]
        return self._tokenizer.decode(ids, skip_special_tokens=params.skip_special_tokens)

    def output(self, request_id: str) -> RequestOutput:
        """The request's output so far. Text that may be the start of a stop string is held back."""
        state = self._states[request_id]
        return RequestOutput(
            request_id=request_id,
            prompt_token_ids=state.prepared.token_ids,
            outputs=tuple(
                self._completion(index, state.prepared, sequence)
                for index, sequence in enumerate(state.sequences)
            ),
            finished=state.finished,
            cached_tokens=state.cached_tokens,
            encoded_items=state.encoded_items,
            timings=state.timings,
            error=state.error,
        )

    def _completion(self, index: int, request: PreparedRequest, sequence: SequenceText) -> CompletionOutput:
        ids, result = tuple(sequence.token_ids), sequence.result
        if result is None:
            text = _without_stop_prefix(sequence.decode(), request.sampling.stop)
            return CompletionOutput(index, text, ids, sequence.finish_reason)
        return CompletionOutput(
            index, result.text, ids, sequence.finish_reason, sequence.stop_reason, dict(result.fields)
        )

    def stamp(self, request_id: str, **moments: float) -> None:
        """Set timings of a request by name."""
        state = self._states[request_id]
        state.timings = replace(state.timings, **moments)


def _observe(target: SequenceText, token_ids: Sequence[int], scores: Sequence[TokenLogprobs]) -> bool:
    """Show new tokens to the family's stop rule; True where it ends the sequence."""
    assert target.stop_rule is not None
    ends = False
    for token_id, score in zip(token_ids, scores, strict=True):
        target.logits.append(score.logit)
        target.logprobs.append(score.chosen)
        ends = target.stop_rule.observe(token_id, score.logit, score.chosen) or ends
    return ends


def _generation(state: RequestState, sequence: SequenceText) -> Generation:
    return Generation(
        request=state.prepared,
        ids=tuple(sequence.token_ids),
        text=sequence.text,
        logits=tuple(sequence.logits),
        logprobs=tuple(sequence.logprobs),
        previous=state.previous,
    )


def _cut_at_stop_string(params: SamplingParams, target: SequenceText) -> str | None:
    """The first stop string in the text that came since the last look, cut off the text."""
    start = max(0, len(target.text) - max(map(len, params.stop)) + 1)
    text = target.decode()
    if len(target.token_ids) <= params.min_tokens:
        return None
    hits = [(text.find(stop, start), stop) for stop in params.stop if text.find(stop, start) >= 0]
    if not hits:
        return None
    index, stop = min(hits)
    target.text = text[: index + (len(stop) if params.include_stop_str_in_output else 0)]
    return stop


def _without_stop_prefix(text: str, stops: Sequence[str]) -> str:
    """``text`` without its longest end that a stop string starts with."""
    longest = max((len(stop) for stop in stops), default=1) - 1
    for length in range(min(longest, len(text)), 0, -1):
        if any(stop.startswith(text[-length:]) for stop in stops):
            return text[:-length]
    return text
