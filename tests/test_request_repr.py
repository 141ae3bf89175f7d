"""``repr(RequestOutput)`` fits a line of a debugger."""

from __future__ import annotations

from mmcore import CompletionOutput, RequestOutput
from mmcore.errors import MediaFormatError


def output(*outputs: CompletionOutput, error: MediaFormatError | None = None) -> RequestOutput:
    return RequestOutput("request-7", tuple(range(5000)), outputs, finished=True, error=error)


def test_it_says_how_the_answer_ended_and_begins() -> None:
    one = CompletionOutput(0, "harbour lights\n" + "x" * 500, tuple(range(700)), "stop")
    two = CompletionOutput(1, "harbour", (1, 2))
    text = repr(output(one, two))
    assert text.startswith("RequestOutput('request-7', stop after 700 tokens: 'harbour lights\\nxxx")
    assert "running after 2 tokens: 'harbour'" in text
    assert len(text) < 200


def test_it_says_what_went_wrong() -> None:
    text = repr(output(error=MediaFormatError("no picture")))
    assert text == "RequestOutput('request-7', error=MediaFormatError('no picture'))"
