"""What adapters read from a checkpoint's small files, whatever its age."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mmcore.adapter import CheckpointFiles, Placeholder
from mmcore.errors import CheckpointError
from mmcore.inputs.template import template_tokens
from mmcore.parts.fields import Json
from mmcore.request import Modality


def picture_settings(files: CheckpointFiles) -> Mapping[str, Any]:
    """The image processor's settings: a file of their own, or a part of ``processor_config.json``."""
    whole = files.json("processor_config.json").get("image_processor")
    return whole or files.json("preprocessor_config.json")


def part_config(config: Json, files: CheckpointFiles, names: Sequence[str], folder: str) -> Json:
    """A part's config: a field of ``config.json`` by one of its names, or the file in the part's folder.

    Raises `CheckpointError` where there is neither.
    """
    for name in names:
        if isinstance(config.get(name), Mapping):
            return config[name]  # type: ignore[no-any-return]
    found = files.json(f"{folder}/config.json")
    if not found:
        raise CheckpointError(f"config.json has no {names[0]}, and {folder}/config.json is missing")
    return found


def placeholder(
    config: Json, files: CheckpointFiles, modality: Modality, text: str, unknown: int | None = None
) -> Placeholder:
    """Its id by the config's ``{modality}_token_id``, by ``{modality}_token_index`` in old files, else by the
    tokenizer, else ``unknown``. Raises `CheckpointError` where nobody knows it."""
    named = (config.get(f"{modality}_token_{what}") for what in ("id", "index"))
    found = next((value for value in named if value is not None), files.tokenizer.token_id(text))
    found = unknown if found is None else found
    if found is None:
        raise CheckpointError(f"neither config.json nor tokenizer.json knows {text!r}")
    return Placeholder(modality, text, int(found))


def first_token(files: CheckpointFiles, *, by_default: bool) -> str:
    """The BOS token, where the checkpoint's tokenizer begins every text with it; else nothing.

    ``by_default`` holds where ``tokenizer_config.json`` does not say ``add_bos_token``.
    """
    if not files.json("tokenizer_config.json").get("add_bos_token", by_default):
        return ""
    return dict(template_tokens(files)).get("bos_token", "")
