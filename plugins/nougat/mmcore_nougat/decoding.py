"""How pages are decoded, and what becomes of the answer: markdown of a paper, fields of a form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mmcore.adapter import CheckpointFiles, Generation, StopRule, Tokenizer
from mmcore.errors import CheckpointError, UnsupportedOptionError
from mmcore.inputs.decoding import PlainDecoding, decoding_defaults
from mmcore.parts.fields import Json, need
from mmcore.request import PreparedRequest, Result
from mmcore_nougat.forms import token2json
from mmcore_nougat.markdown import markdown
from mmcore_nougat.repetition import RepetitionStop, repetition_start

_OPTIONS: Mapping[str, tuple[Any, ...]] = {
    "text": ("markdown", "mathpix", "raw"),
    "stop_repetitions": (True, False),
}


@dataclass(frozen=True, slots=True)
class PaperDecoding(PlainDecoding):
    """Nougat: an answer that repeats itself ends, and the repetition is left out of its text.

    Decoder options, the first of each is the default: ``text`` says what the answer becomes ("mathpix":
    markdown as the model was taught it), ``stop_repetitions``. Field ``repeats``: `repetition_start`.
    """

    tokenizer: Tokenizer = field(kw_only=True, compare=False, repr=False)

    def prefix(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        for name, value in options.items():
            known = _OPTIONS.get(name)
            if known is None:
                raise UnsupportedOptionError(
                    f"pages have no decoder option {name!r}; {', '.join(_OPTIONS)} are known"
                )
            if type(value) is not type(known[0]) or value not in known:
                raise UnsupportedOptionError(
                    f"decoder option {name}={value!r} is none of {', '.join(map(repr, known))}"
                )
        return self.decoder_prefix

    def stop_rule(self, request: PreparedRequest) -> StopRule | None:
        """None with beam search: whose logits would be watched?"""
        watches = _option(request, "stop_repetitions") and not request.sampling.use_beam_search
        return RepetitionStop() if watches else None

    def finish(self, generation: Generation) -> Result:
        repeats = self._repeats(generation)
        text, form = generation.text, _option(generation.request, "text")
        if repeats is not None:  # counted with the start token
            text = self.tokenizer.decode(generation.ids[: max(0, repeats - 1)])
        if form != "raw":
            text = markdown(text, compatible=form == "markdown")
        return Result(text, (("repeats", repeats),))

    def _repeats(self, generation: Generation) -> int | None:
        ended = bool(generation.ids) and generation.ids[-1] in self.defaults.stop_ids
        return None if ended else repetition_start(generation.logits)


def _option(request: PreparedRequest, name: str) -> Any:
    return dict(request.decoder_options).get(name, _OPTIONS[name][0])


@dataclass(frozen=True, slots=True)
class FormDecoding(PlainDecoding):
    """Donut: field ``json`` is what `token2json` makes of prompt and answer, without the task's own token."""

    tokenizer: Tokenizer = field(kw_only=True, compare=False, repr=False)
    left_out: tuple[int, ...] = field(kw_only=True)
    """Tokens that end or fill up a sequence."""

    def finish(self, generation: Generation) -> Result:
        _, *ids = generation.request.token_ids
        kept = [token for token in (*ids, *generation.ids) if token not in self.left_out]
        answer = self.tokenizer.decode(kept, skip_special_tokens=False)
        return Result(generation.text, (("json", token2json(answer.strip(), _Tokens(self.tokenizer))),))


@dataclass(frozen=True, slots=True)
class _Tokens:
    tokenizer: Tokenizer

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and self.tokenizer.token_id(text) is not None


# ------------------------------------------------------------------ from the checkpoint


def read_decoding(config: Json, files: CheckpointFiles, *, paper: bool) -> PlainDecoding:
    """Of a paper or a form. The unknown token is never generated, as both originals have it."""
    part = need(config, "decoder")
    generation, tokenizer = files.json("generation_config.json"), files.tokenizer
    defaults = decoding_defaults(
        generation, {"eos_token_id": _first(generation, config, part, name="eos_token_id")}
    )
    unknown = tokenizer.token_id("<unk>")
    if unknown is not None:
        defaults = replace(defaults, suppress_ids=tuple(sorted({*defaults.suppress_ids, unknown})))
    prefix = (_start(generation, config, part),)
    if paper:
        return PaperDecoding(defaults, prefix, tokenizer=tokenizer)
    padding = tokenizer.token_id("<pad>")
    left_out = (*defaults.stop_ids, *(() if padding is None else (padding,)))
    return FormDecoding(defaults, prefix, tokenizer=tokenizer, left_out=left_out)


def _start(*places: Json) -> int:
    """The start token, or where nobody names one that which begins a text."""
    for name in ("decoder_start_token_id", "bos_token_id"):
        found = _first(*places, name=name)
        if found is not None:
            return int(found)
    raise CheckpointError(
        "config.json: neither decoder_start_token_id nor bos_token_id says how an answer begins"
    )


def _first(*places: Json, name: str) -> Any:
    return next(_named(places, name), None)


def _named(places: tuple[Json, ...], name: str) -> Iterator[Any]:
    return (place[name] for place in places if place.get(name) is not None)
