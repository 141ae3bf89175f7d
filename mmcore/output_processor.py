"""From token ids to text: detokenising, stop strings, family stop rules, `RequestOutput`s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from mmcore.adapter import Adapter, FollowUp, Generation, StopRule, Tokenizer
from mmcore.core.output import TokenLogprobs
from mmcore.errors import MMCoreError, plugin_code
from mmcore.inputs.tokenizer import IncrementalDecoder
from mmcore.request import (
    CompletionOutput,
    FinishReason,
    Logprob,
    PreparedRequest,
    RequestOutput,
    RequestTimings,
    Result,
)
from mmcore.sampling_params import SamplingParams

T = TypeVar("T")


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
    top: list[Mapping[int, Logprob]] = field(default_factory=list)
    """Where the request asked for logprobs, one a token."""
    result: Result | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    found_stop: str | None = None
    """The stop string that its text was cut at, or the family's rule that ended it."""

    def decode(self) -> str:
        """Text of all ids so far; ids are decoded when somebody looks, not one by one."""
        if self.num_decoded < len(self.token_ids):
            self.text += self.decoder.push(self.token_ids[self.num_decoded :])
            self.num_decoded = len(self.token_ids)
        return self.text


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """A request that ended. ``follow_up`` is its chain's next link, ``output`` that of all links so far."""

    output: RequestOutput
    prepared: PreparedRequest
    result: Result | None = None
    follow_up: FollowUp | None = None


@dataclass(slots=True)
class RequestState:
    """One request's sequences, on their way to a `RequestOutput`."""

    prepared: PreparedRequest
    sequences: list[SequenceText]
    timings: RequestTimings
    cached_tokens: int = 0
    encoded_items: int = 0
    error: MMCoreError | None = None
    earlier: FinishedRequest | None = None
    """The link before it in its chain."""
    is_ranked: bool = field(init=False)
    """`SamplingParams.is_ranked`, which is asked after each token."""

    def __post_init__(self) -> None:
        self.is_ranked = self.prepared.sampling.is_ranked

    @property
    def finished(self) -> bool:
        return self.error is not None or all(s.finish_reason is not None for s in self.sequences)


class OutputProcessor:
    """Turns generated ids into outputs; says when a stop string or a family's rule ends a sequence.

    What a family's code raises is raised as the `RequestError` of its request.
    """

    def __init__(self, adapter: Adapter, tokenizer: Tokenizer) -> None:
        self._name = adapter.name
        self._decoding = adapter.decoding
        self._tokenizer = tokenizer
        self._states: dict[str, RequestState] = {}

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._states

    def __len__(self) -> int:
        return len(self._states)

    def begin(
        self, prepared: PreparedRequest, timings: RequestTimings, earlier: FinishedRequest | None = None
    ) -> RequestState:
        """The state of a new request, or of the next link of a chain, whose clock runs on."""
        return RequestState(
            prepared,
            [self._new_text(prepared) for _ in range(prepared.sampling.num_sequences)],
            replace(earlier.output.timings, finished=0.0) if earlier else timings,
            earlier=earlier,
        )

    def _new_text(self, prepared: PreparedRequest) -> SequenceText:
        decoder = IncrementalDecoder(
            self._tokenizer, skip_special_tokens=prepared.sampling.skip_special_tokens
        )
        with plugin_code(self._name, "making its stop rule"):
            return SequenceText(decoder, self._decoding.stop_rule(prepared))

    def add(self, state: RequestState) -> None:
        self._states[state.prepared.request_id] = state

    def state(self, request_id: str) -> RequestState:
        return self._states[request_id]

    def pop(self, request_id: str) -> RequestState:
        return self._states.pop(request_id)

    def grows(self, request_id: str) -> bool:
        """It runs, and what a caller sees of it only ever grows: not where sequences are still ranked."""
        state = self._states.get(request_id)
        return state is not None and not state.is_ranked

    def extend(
        self, request_id: str, sequence: int, token_ids: Sequence[int], scores: Sequence[TokenLogprobs]
    ) -> str | None:
        """Append generated ids. Returns the stop string, or the name of the family's rule, that ends them.

        ``scores`` are those of ``token_ids``; they may be empty where the family has no stop rule.
        """
        state = self._states[request_id]
        target = state.sequences[sequence]
        target.token_ids.extend(token_ids)
        params = state.prepared.sampling
        if scores:
            _note_scores(params, target, token_ids, scores)
        if target.stop_rule is not None:
            with plugin_code(self._name, "looking for the end of the answer"):
                if _observe(target, token_ids, scores):
                    target.found_stop = "stop_rule"
        if target.found_stop is None and params.stop:
            target.found_stop = _cut_at_stop_string(params, target)
        return target.found_stop

    def end(
        self, request_id: str, sequence: int, reason: FinishReason, stop_reason: int | str | None = None
    ) -> None:
        """Close one sequence; a stop id it ended with is in ``token_ids`` and not in the text.

        The family makes nothing of what ended in an error.
        """
        state = self._states[request_id]
        target = state.sequences[sequence]
        if target.finish_reason is not None:
            return
        if target.found_stop is not None and reason == "length":  # its last token completed a stop string
            reason, stop_reason = "stop", target.found_stop
        target.finish_reason, target.stop_reason = reason, stop_reason
        if reason == "error":
            return
        if isinstance(stop_reason, int):
            target.text = self._text_without_stop_id(state.prepared.sampling, target)
        elif stop_reason not in state.prepared.sampling.stop:
            target.text = target.decode() + target.decoder.flush()
        with plugin_code(self._name, "finishing the answer"):
            target.result = _checked(self._decoding.finish(_generation(state, target)), Result)

    def _text_without_stop_id(self, params: SamplingParams, target: SequenceText) -> str:
        ids = target.token_ids if params.include_stop_str_in_output else target.token_ids[:-1]
        return self._tokenizer.decode(ids, skip_special_tokens=params.skip_special_tokens)

    def output(self, request_id: str) -> RequestOutput:
        """The request's output so far, of all links of its chain together.

        Text that may be the start of a stop string is held back.
        """
        state = self._states[request_id]
        output = RequestOutput(
            request_id=request_id,
            prompt_token_ids=state.prepared.token_ids,
            outputs=tuple(
                self._completion(index, state.prepared, sequence)
                for index, sequence in enumerate(_given(state))
            ),
            finished=state.finished,
            cached_tokens=state.cached_tokens,
            encoded_items=state.encoded_items,
            timings=state.timings,
            error=state.error,
        )
        return _chained(state.earlier, output) if state.earlier else output

    def _completion(self, index: int, request: PreparedRequest, sequence: SequenceText) -> CompletionOutput:
        params, result = request.sampling, sequence.result
        wants_logprobs = params.logprobs is not None
        return CompletionOutput(
            index=index,
            text=_without_stop_prefix(sequence.decode(), params.stop) if result is None else result.text,
            token_ids=tuple(sequence.token_ids),
            finish_reason=sequence.finish_reason,
            stop_reason=None if result is None else sequence.stop_reason,
            fields={} if result is None else dict(result.fields),
            logprobs=tuple(sequence.top) if wants_logprobs else None,
            cumulative_logprob=sum(sequence.logprobs) if wants_logprobs or params.is_ranked else None,
        )

    def stamp(self, request_id: str, **moments: float) -> None:
        """Set timings of a request by name; a moment that has come already stays."""
        state = self._states[request_id]
        new = {name: time for name, time in moments.items() if not getattr(state.timings, name)}
        state.timings = replace(state.timings, **new)


def _chained(earlier: FinishedRequest, output: RequestOutput) -> RequestOutput:
    """One link's output with all before it. Its text is the chain's once its family has made it."""
    before, said = earlier.output, earlier.result.text if earlier.result else ""
    return replace(
        output,
        prompt_token_ids=before.prompt_token_ids + output.prompt_token_ids,
        outputs=tuple(_joined(before.outputs[0], sequence, said) for sequence in output.outputs),
        cached_tokens=before.cached_tokens + output.cached_tokens,
        encoded_items=before.encoded_items + output.encoded_items,
    )


def _joined(before: CompletionOutput, sequence: CompletionOutput, said: str) -> CompletionOutput:
    logprobs, total = sequence.logprobs, sequence.cumulative_logprob
    return replace(
        sequence,
        text=sequence.text if sequence.finish_reason else said,
        token_ids=before.token_ids + sequence.token_ids,
        logprobs=None if logprobs is None else (*(before.logprobs or ()), *logprobs),
        cumulative_logprob=None if total is None else total + (before.cumulative_logprob or 0.0),
    )


def _checked(made: T, kind: type[T]) -> T:
    if not isinstance(made, kind):
        raise TypeError(f"{kind.__name__} expected, got {type(made).__name__}")
    return made


def _given(state: RequestState) -> Sequence[SequenceText]:
    """The sequences that the caller sees: the ``n`` best once all have ended; beams come in that order."""
    params = state.prepared.sampling
    if params.is_ranked and not params.use_beam_search and state.finished:
        return sorted(state.sequences, key=lambda one: -sum(one.logprobs))[: params.n]
    return state.sequences[: params.n]


def _note_scores(
    params: SamplingParams, target: SequenceText, token_ids: Sequence[int], scores: Sequence[TokenLogprobs]
) -> None:
    target.logits += [score.logit for score in scores]
    target.logprobs += [score.chosen for score in scores]
    if params.logprobs is not None:
        for token_id, score in zip(token_ids, scores, strict=True):
            top = {one: Logprob(value, rank) for rank, (one, value) in enumerate(score.top, start=1)}
            target.top.append({**top, token_id: Logprob(score.chosen, score.rank)})


def _observe(target: SequenceText, token_ids: Sequence[int], scores: Sequence[TokenLogprobs]) -> bool:
    """Show new tokens to the family's stop rule; True where it ends the sequence."""
    assert target.stop_rule is not None
    ends = False
    for token_id, score in zip(token_ids, scores, strict=True):
        ends = target.stop_rule.observe(token_id, score.logit, score.chosen) or ends
    return ends


def _generation(state: RequestState, sequence: SequenceText) -> Generation:
    return Generation(
        request=state.prepared,
        ids=tuple(sequence.token_ids),
        text=sequence.text,
        logits=tuple(sequence.logits),
        logprobs=tuple(sequence.logprobs),
        previous=state.earlier.result if state.earlier else None,
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
