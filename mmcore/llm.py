"""`LLM`: a checkpoint, ready to answer. The names are those of TensorRT-LLM's ``LLM`` API."""

from __future__ import annotations

import itertools
import os
import random
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, cast, overload

from mmcore.async_engine import AsyncEngine
from mmcore.call_arguments import (
    P,
    Params,
    PromptLike,
    as_prompt,
    checked_params,
    each_params,
    is_one_prompt,
    one_params,
)
from mmcore.config import Device, Dtype, EngineConfig, KvCacheConfig, LoadFormat, MediaPolicy
from mmcore.engine import DEFAULT_MAX_TOKENS, Engine, EngineStats
from mmcore.engine_builder import build_engine
from mmcore.errors import ConfigError, InputError, UnsupportedOptionError
from mmcore.inputs.prompt import ChatMessage, Prompt
from mmcore.progress import most_tokens, progress_bar
from mmcore.request import PreparedRequest, RequestOutput
from mmcore.request_handle import RequestHandle
from mmcore.sampling_params import SamplingParams
from mmcore.transcribe import Start, Transcriber

_OFF = {
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "speculative_config": None,
    "enable_lora": False,
    "quant_config": None,
}
"""Options that TensorRT-LLM knows and mmcore refuses by name, with the value that means "off"."""


class LLM(Transcriber):
    """Loads a checkpoint and answers prompts, many at once.

    ``model`` is a folder in hub layout or a hub name. ``adapter`` chooses an adapter by name where several
    serve the checkpoint; ``revision`` and ``token`` go to the hub. ``load_format="dummy"`` fills random
    weights instead of the checkpoint's. ``seed`` draws the seeds of sampled requests that bring none.
    ``trust_remote_code`` is accepted and never runs code. Raises `ConfigError`, `CheckpointError`,
    `PluginError`.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        kv_cache_config: KvCacheConfig | None = None,
        dtype: Dtype = "auto",
        device: Device = "auto",
        load_format: LoadFormat = "auto",
        max_batch_size: int = 256,
        max_beam_width: int = 16,
        max_num_tokens: int = 8192,
        max_seq_len: int | None = None,
        encoder_cache_bytes: int = 1 << 30,
        media_policy: MediaPolicy | None = None,
        encoder_work: int = 20_000_000_000_000,
        preprocess_workers: int | None = None,
        preprocess_timeout: float = 120.0,
        seed: int | None = None,
        revision: str | None = None,
        token: str | None = None,
        adapter: str | None = None,
        trust_remote_code: bool = False,
        **options: Any,
    ) -> None:
        _refuse(options)
        config = EngineConfig(
            dtype=dtype,
            device=device,
            load_format=load_format,
            kv_cache=kv_cache_config or KvCacheConfig(),
            media=media_policy or MediaPolicy(),
            max_batch_size=max_batch_size,
            max_beam_width=max_beam_width,
            max_num_tokens=max_num_tokens,
            max_seq_len=max_seq_len,
            encoder_cache_bytes=encoder_cache_bytes,
            encoder_work=encoder_work,
            preprocess_workers=preprocess_workers,
            preprocess_timeout=preprocess_timeout,
        )
        self._engine: Engine = build_engine(model, config, revision=revision, token=token, adapter=adapter)
        self._pipeline = self._engine.pipeline
        self._front = AsyncEngine(self._engine, prepare_workers=config.num_workers)
        self._ids = itertools.count()
        self._seeds = random.Random(seed)
        self._finalizer = weakref.finalize(self, AsyncEngine.shutdown, self._front)

    # -------------------------------------------------------------- asking

    @overload
    def generate(
        self,
        inputs: PromptLike,
        sampling_params: SamplingParams | None = None,
        use_tqdm: bool = True,
        *,
        priority: int = 0,
    ) -> RequestOutput: ...
    @overload
    def generate(
        self,
        inputs: list[P],
        sampling_params: Params = None,
        use_tqdm: bool = True,
        *,
        priority: int = 0,
    ) -> list[RequestOutput]: ...
    def generate(
        self,
        inputs: PromptLike | list[P],
        sampling_params: Params = None,
        use_tqdm: bool = True,
        *,
        priority: int = 0,
    ) -> RequestOutput | list[RequestOutput]:
        """Answer one prompt or many: one output for one prompt, a list for a list.

        A failed prompt raises its error; in a list the others finish, and the failed one's output carries
        ``error`` and raises it when its text is asked for.
        """
        if is_one_prompt(inputs):
            one = cast(PromptLike, inputs)
            return self._run_one(
                lambda: self.generate_async(one, one_params(sampling_params), priority=priority)
            )
        prompts = cast(list[PromptLike], inputs)
        params = each_params(sampling_params, len(prompts))
        return self._run_all(
            [
                lambda p=p, s=s: self.generate_async(p, s, priority=priority)  # type: ignore[misc]
                for p, s in zip(prompts, params, strict=True)
            ],
            use_tqdm,
            most_tokens(params, DEFAULT_MAX_TOKENS),
        )

    def generate_async(
        self,
        inputs: PromptLike,
        sampling_params: SamplingParams | None = None,
        *,
        streaming: bool = False,
        priority: int = 0,
    ) -> RequestHandle:
        """Start one prompt. ``await`` the handle, or iterate it (``async for``, ``for``) as it grows.

        A lower ``priority`` runs first; those who wait age past it.
        """
        request_id, pipeline = self._next_id(), self._pipeline  # a thread that held self could not end it
        if isinstance(inputs, PreparedRequest):
            own = self._seeded(sampling_params or inputs.sampling, streaming)
            prepared = replace(
                inputs, request_id=request_id, sampling=own, priority=priority or inputs.priority
            )
            return self._front.submit(request_id, lambda: pipeline.accept(prepared), stream=streaming)
        params = self._seeded(sampling_params, streaming)
        return self._front.submit(
            request_id,
            lambda: pipeline.prepare(as_prompt(inputs), params, request_id=request_id, priority=priority),
            stream=streaming,
        )

    @overload
    def chat(
        self,
        messages: Sequence[ChatMessage],
        sampling_params: Params = None,
        use_tqdm: bool = True,
        **options: Any,
    ) -> RequestOutput: ...
    @overload
    def chat(
        self,
        messages: Sequence[Sequence[ChatMessage]],
        sampling_params: Params = None,
        use_tqdm: bool = True,
        **options: Any,
    ) -> list[RequestOutput]: ...
    def chat(
        self,
        messages: Sequence[ChatMessage] | Sequence[Sequence[ChatMessage]],
        sampling_params: Params = None,
        use_tqdm: bool = True,
        **options: Any,
    ) -> RequestOutput | list[RequestOutput]:
        """Answer one conversation or many, rendered with the checkpoint's own chat template.

        ``options`` are those of `chat_async`, the same for all conversations.
        """
        if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
            raise InputError(
                "chat() takes a list of {'role': ..., 'content': ...}, or a list of such lists, not a "
                f"{type(messages).__name__}"
            )
        if not messages:
            raise InputError("chat() needs at least one message")
        if isinstance(messages[0], Mapping):
            chat = cast(Sequence[ChatMessage], messages)
            return self._run_one(lambda: self.chat_async(chat, one_params(sampling_params), **options))
        chats = cast(Sequence[Sequence[ChatMessage]], messages)
        params = each_params(sampling_params, len(chats))
        return self._run_all(
            [lambda c=c, s=s: self.chat_async(c, s, **options) for c, s in zip(chats, params, strict=True)],  # type: ignore[misc]
            use_tqdm,
            most_tokens(params, DEFAULT_MAX_TOKENS),
        )

    def chat_async(
        self,
        messages: Sequence[ChatMessage],
        sampling_params: SamplingParams | None = None,
        *,
        streaming: bool = False,
        mm_processor_kwargs: Any = None,
        decoder_options: Mapping[str, Any] | None = None,
        cache_salt: str = "",
    ) -> RequestHandle:
        """Start one conversation's answer, as `generate_async` a prompt's; the options are a prompt's too."""
        request_id, pipeline = self._next_id(), self._pipeline
        params = self._seeded(sampling_params, streaming)
        return self._front.submit(
            request_id,
            lambda: pipeline.prepare_chat(
                messages,
                params,
                request_id=request_id,
                mm_processor_kwargs=mm_processor_kwargs,
                decoder_options=decoder_options,
                cache_salt=cache_salt,
            ),
            stream=streaming,
        )

    def preprocess(self, inputs: Prompt, sampling_params: SamplingParams | None = None) -> PreparedRequest:
        """Tokens, placeholder ranges and keys of a prompt, without running it; `generate` takes it."""
        return self._pipeline.prepare(inputs, checked_params(sampling_params), request_id=self._next_id())

    # -------------------------------------------------------------- the engine

    @property
    def stats(self) -> EngineStats:
        """The engine's counters so far."""
        return self._engine.stats

    def shutdown(self) -> None:
        """Abort what runs and free the engine. May be called twice."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown()

    def _seeded(self, params: SamplingParams | None, streaming: bool) -> SamplingParams:
        """Draw a seed for a request that brings none, in the order of the calls.

        A stream is no beam search unless it is asked for: beams show nothing before their end.
        """
        params = checked_params(params)
        if streaming and params.use_beam_search is None:
            params = params.model_copy(update={"use_beam_search": False})
        if params.seed is not None:
            return params
        return params.model_copy(update={"seed": self._seeds.getrandbits(62)})

    def _next_id(self) -> str:
        return f"request-{next(self._ids)}"

    def _run_one(self, start: Start) -> RequestOutput:
        (output,) = self._run_all([start], use_tqdm=False)
        if output.error is not None:
            raise output.error
        return output

    def _run_all(
        self, starts: Sequence[Start], use_tqdm: bool, expected: int = DEFAULT_MAX_TOKENS
    ) -> list[RequestOutput]:
        """``expected``: tokens of an answer at most, for the progress bar."""
        handles: list[RequestHandle] = []
        try:
            handles += (start() for start in starts)
            engine = self._engine
            with progress_bar(
                handles, lambda: engine.stats.tokens_generated, expected=expected, shown=use_tqdm
            ) as bar:
                return [bar.wait(handle) for handle in handles]
        except BaseException:
            for handle in handles:
                handle.abort()
            raise


def _refuse(options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        if name not in _OFF:
            raise ConfigError(f"LLM() has no option {name!r}")
        if value != _OFF[name]:
            raise UnsupportedOptionError(f"LLM({name}={value!r}) is not built yet; leave it out")
