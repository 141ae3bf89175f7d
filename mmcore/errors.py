"""Every error that a user, a file or a plugin can cause.

    MMCoreError
    ├── InputError                   what a caller handed in (HTTP 400)
    │   ├── PromptError              messages, prompt text, roles, chat template
    │   ├── PlaceholderMismatchError as many media slots as media, please
    │   ├── ContextLengthError       prompt and answer do not fit the model
    │   ├── RequestTooLargeError     can never fit the configured caches
    │   ├── SamplingParamsError
    │   ├── UnsupportedOptionError   known name, not built yet
    │   └── MediaError
    │       ├── UnknownModalityError
    │       ├── MediaFormatError     not decodable, or not an accepted format
    │       ├── MediaLimitError      outside a limit; names the limit
    │       ├── MediaPolicyError     URL, path or address that is not allowed
    │       ├── MediaFileError       a local file that is not there or cannot be read
    │       ├── MediaFetchError      could not be fetched (retryable)
    │       └── MediaMissError       UUID without content, no verified entry (retryable)
    ├── ConfigError                  options of LLM(...), server and command line
    │   └── MissingExtraError        an optional package is not installed; names the command
    ├── CheckpointError              a model folder or hub name
    │   ├── UnknownArchitectureError no adapter installed for it; names the package
    │   └── WeightError              missing, extra, or wrongly shaped tensor
    ├── PluginError
    │   ├── PluginLoadError          a plugin raised while it was loaded
    │   ├── UnknownAdapterError
    │   ├── AmbiguousAdapterError    two adapters claim one architecture
    │   └── PluginVersionError       written for another version of the contract
    ├── RequestError                 one request failed while running
    │   ├── EncoderOutputError       rows that are not finite or not as planned
    │   ├── RequestAbortedError
    │   └── RequestTimeoutError      media was not ready in time (retryable)
    └── EngineError                  the engine itself cannot go on (fatal)
        └── KernelError              a kernel that does not compile for the card

`code` is stable and goes over the wire; the message says what, where and what to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar


class MMCoreError(Exception):
    """Base class. ``code`` is a stable identifier, ``http_status`` what a server answers."""

    code: ClassVar[str] = "mmcore_error"
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False


class InputError(MMCoreError):
    """The caller's own data or options are wrong."""

    code = "invalid_input"
    http_status = 400


class PromptError(InputError):
    code = "invalid_prompt"


class PlaceholderMismatchError(InputError):
    code = "placeholder_mismatch"


class ContextLengthError(InputError):
    code = "context_length_exceeded"


class RequestTooLargeError(InputError):
    code = "request_too_large"


class SamplingParamsError(InputError):
    code = "invalid_sampling_params"


class UnsupportedOptionError(InputError):
    code = "unsupported_option"


class MediaError(InputError):
    code = "invalid_media"


class UnknownModalityError(MediaError):
    code = "unknown_modality"


class MediaFormatError(MediaError):
    code = "media_format"


class MediaLimitError(MediaError):
    code = "media_limit_exceeded"


class MediaPolicyError(MediaError):
    code = "media_not_allowed"


class MediaFileError(MediaError):
    code = "media_file"


class MediaFetchError(MediaError):
    code = "media_fetch_failed"
    retryable = True


class MediaMissError(MediaError):
    code = "media_not_cached"
    http_status = 409
    retryable = True


class ConfigError(MMCoreError):
    code = "invalid_config"
    http_status = 400


class MissingExtraError(ConfigError):
    code = "missing_extra"


class CheckpointError(MMCoreError):
    code = "invalid_checkpoint"


class UnknownArchitectureError(CheckpointError):
    code = "unknown_architecture"


class WeightError(CheckpointError):
    code = "invalid_weights"


class PluginError(MMCoreError):
    code = "plugin_error"


class PluginLoadError(PluginError):
    code = "plugin_load_failed"


class UnknownAdapterError(PluginError):
    code = "unknown_adapter"


class AmbiguousAdapterError(PluginError):
    code = "ambiguous_adapter"


class PluginVersionError(PluginError):
    code = "plugin_version"


class RequestError(MMCoreError):
    """One request failed; its neighbours did not."""

    code = "request_failed"


class EncoderOutputError(RequestError):
    code = "invalid_encoder_output"


class RequestAbortedError(RequestError):
    code = "request_aborted"
    http_status = 499


class RequestTimeoutError(RequestError):
    code = "request_timeout"
    http_status = 503
    retryable = True


class EngineError(MMCoreError):
    """Fatal: the engine stops and every request of it fails."""

    code = "engine_failed"


class KernelError(EngineError):
    code = "kernel_failed"


@contextmanager
def plugin_code(adapter: str, action: str) -> Iterator[None]:
    """What the code of a family raises inside becomes the error of the request that it served.

    ``adapter`` is the adapter's name, ``action`` what it was asked for: "finishing the answer".
    """
    try:
        yield
    except MMCoreError:
        raise
    except (Exception, SystemExit) as error:
        raise RequestError(f"adapter {adapter!r} failed {action} ({type(error).__name__})") from error
