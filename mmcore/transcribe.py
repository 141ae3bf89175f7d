"""Transcribing recordings of any length: how `LLM.transcribe` asks, and what its callers hold meanwhile."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import IO, Any, Literal, overload

from mmcore.adapter import Adapter
from mmcore.call_arguments import PromptLike
from mmcore.errors import UnsupportedOptionError
from mmcore.inputs.pipeline import InputPipeline
from mmcore.inputs.prompt import TextPrompt
from mmcore.request import RequestOutput
from mmcore.request_handle import RequestHandle
from mmcore.sampling_params import SamplingParams
from mmcore.transcript import Transcript, transcript_of

Sound = str | os.PathLike[str] | bytes | IO[bytes] | tuple[Any, float]
"""A path, a URL, a file's bytes or the open file, or (samples, rate)."""
Timestamps = Literal["segment"] | None
Start = Callable[[], RequestHandle]
GREEDY = SamplingParams(temperature=0.0, seed=0)


def check_transcribes(adapter: Adapter) -> None:
    """Raises `UnsupportedOptionError` where the model is none that writes down speech."""
    if not adapter.transcribes:
        raise UnsupportedOptionError(
            f"adapter {adapter.name!r} does not transcribe; ask it with generate() or chat(), or load a "
            "speech recognition model"
        )


@dataclass(frozen=True, slots=True)
class TranscribeOptions:
    """What `LLM.transcribe` documents."""

    language: str | None
    task: str
    timestamps: Timestamps
    initial_prompt: str | None

    def prompt(self, sound: Sound, cache_salt: str) -> TextPrompt:
        """The first link of a recording's chain. Raises `UnsupportedOptionError`.

        Timestamps are decoded even if nobody wants them: they say where a window's speech ends.
        """
        if self.timestamps not in ("segment", None):
            raise UnsupportedOptionError(
                f'timestamps={self.timestamps!r} is not built yet; give "segment" or None'
            )
        return TextPrompt(
            prompt="",
            multi_modal_data={"audio": [sound]},
            decoder_options={**asdict(self), "timestamps": "segment"},
            cache_salt=cache_salt,
        )

    def transcript(self, output: RequestOutput) -> Transcript:
        """From a final output, or from one that a link of the chain has left."""
        return transcript_of(output, segments=self.timestamps is not None)


class TranscriptHandle:
    """One recording that is being transcribed.

    ``result()`` blocks, ``await handle`` gives the whole transcript; of a handle started with ``streaming``,
    ``for`` and ``async for`` give the transcript so far each time a window is done. Each of them raises the
    request's `MMCoreError`. Leaving a loop early, or cancelling what awaits the handle, aborts the request.
    """

    def __init__(self, handle: RequestHandle, options: TranscribeOptions) -> None:
        self._handle = handle
        self._options = options

    def abort(self) -> None:
        """End it; what was transcribed so far is its result."""
        self._handle.abort()

    @property
    def done(self) -> bool:
        return self._handle.done

    def result(self, timeout: float | None = None) -> Transcript:
        """The whole transcript. Raises the request's error, or `TimeoutError`."""
        return self._options.transcript(self._handle.result(timeout))

    def __await__(self) -> Generator[None, None, Transcript]:
        output = yield from self._handle.__await__()
        return self._options.transcript(output)

    def __iter__(self) -> Iterator[Transcript]:
        outputs = iter(self._handle)
        try:
            yield from (self._options.transcript(output) for output in outputs if _is_news(output))
        finally:
            outputs.close()  # type: ignore[attr-defined]

    async def __aiter__(self) -> AsyncIterator[Transcript]:
        outputs = aiter(self._handle)
        try:
            async for output in outputs:
                if _is_news(output):
                    yield self._options.transcript(output)
        finally:
            await outputs.aclose()  # type: ignore[attr-defined]


class Transcriber(ABC):
    """The methods of `mmcore.llm.LLM` for speech."""

    _pipeline: InputPipeline

    @abstractmethod
    def generate_async(
        self,
        inputs: PromptLike,
        sampling_params: SamplingParams | None = None,
        *,
        streaming: bool = False,
    ) -> RequestHandle:
        """Start one prompt."""

    @abstractmethod
    def _run_one(self, start: Start) -> RequestOutput:
        """Start a request and wait for it. Raises its error."""

    @abstractmethod
    def _run_all(self, starts: Sequence[Start], use_tqdm: bool) -> list[RequestOutput]:
        """Start requests and wait for all of them."""

    @overload
    def transcribe(
        self,
        audio: Sound,
        language: str | None = None,
        task: str = "transcribe",
        timestamps: Timestamps = "segment",
        initial_prompt: str | None = None,
        *,
        cache_salt: str = "",
        use_tqdm: bool = True,
    ) -> Transcript: ...
    @overload
    def transcribe(
        self,
        audio: list[Sound],
        language: str | None = None,
        task: str = "transcribe",
        timestamps: Timestamps = "segment",
        initial_prompt: str | None = None,
        *,
        cache_salt: str = "",
        use_tqdm: bool = True,
    ) -> list[Transcript]: ...
    def transcribe(
        self,
        audio: Sound | list[Sound],
        language: str | None = None,
        task: str = "transcribe",
        timestamps: Timestamps = "segment",
        initial_prompt: str | None = None,
        *,
        cache_salt: str = "",
        use_tqdm: bool = True,
    ) -> Transcript | list[Transcript]:
        """Write down recordings of any length: a transcript for one, a list for a list, decoded together.

        ``language`` is a code or a name, None detects it from the start; ``task`` "translate" gives English.
        ``timestamps`` "segment" gives segments with their times; None gives the same text without them.
        ``initial_prompt`` sets style and spelling of names: a text that seems to precede each window. A
        failed recording raises its error; in a list the others go on, and its transcript carries ``error``.
        """
        options = TranscribeOptions(language, task, timestamps, initial_prompt)
        if not isinstance(audio, list):
            return options.transcript(self._run_one(lambda: self._hear(audio, options, cache_salt)))
        starts = [lambda one=one: self._hear(one, options, cache_salt) for one in audio]
        return [options.transcript(output) for output in self._run_all(starts, use_tqdm)]

    def transcribe_async(
        self,
        audio: Sound,
        language: str | None = None,
        task: str = "transcribe",
        timestamps: Timestamps = "segment",
        initial_prompt: str | None = None,
        *,
        cache_salt: str = "",
        streaming: bool = False,
    ) -> TranscriptHandle:
        """Start one recording, as `transcribe` does. ``await`` the handle, or iterate it window by window."""
        options = TranscribeOptions(language, task, timestamps, initial_prompt)
        return TranscriptHandle(self._hear(audio, options, cache_salt, streaming), options)

    def _hear(
        self, audio: Sound, options: TranscribeOptions, salt: str, streaming: bool = False
    ) -> RequestHandle:
        check_transcribes(self._pipeline.adapter)
        return self.generate_async(options.prompt(audio, salt), GREEDY, streaming=streaming)


def _is_news(output: RequestOutput) -> bool:
    """A link has ended: between two tokens of a window nothing is settled."""
    return output.finished or "position" in output[0].fields
