"""Prompt formats: the checkpoint's own Jinja, or a format that the published code knows by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files as package_files

from mmcore.adapter import CheckpointFiles, Placeholder, PromptTemplate
from mmcore.errors import CheckpointError
from mmcore.inputs.template import JinjaTemplate
from mmcore.parts.fields import Json
from mmcore.parts.settings import first_token
from mmcore.request import MediaSegment, Message, Modality, Segment, TextSegment
from mmcore_nvila.config import Model

TURN_MARKERS = ("USER:", "<|im_start|>", "<|start_header_id|>")
STOPS = {
    "vicuna_v1": ("</s>",),
    "llama_3": ("<|eot_id|>", "<|end_of_text|>"),
    "hermes-2": ("<|im_end|>",),
    "qwen2": ("<|im_end|>",),
}
"""What ends an answer in each named format (``formats/*.jinja``)."""


def format_of(config: Json, model: Model, files: CheckpointFiles) -> str:
    """Its name; empty where the checkpoint's own template counts.

    VILA 1.5 names none in its config. Its published code goes by the model's name (3b and 13b vicuna_v1, 8b
    llama_3, 40b hermes-2), which a folder may have lost: here the special tokens tell. Raises
    `CheckpointError`.
    """
    name = config.get("chat_template")
    if name is not None and name not in STOPS:
        raise CheckpointError(f"config.json: chat_template {name!r} is none of {', '.join(STOPS)}")
    if name is not None or model.ends:
        return name or ""
    if files.tokenizer.token_id("<|eot_id|>") is not None:
        return "llama_3"
    return "vicuna_v1" if files.tokenizer.token_id("<|im_start|>") is None else "hermes-2"


def prompt_template(
    name: str, model: Model, files: CheckpointFiles, placeholders: Sequence[Placeholder]
) -> PromptTemplate:
    folder = package_files("mmcore_nvila") / "formats"
    source = (folder / f"{name}.jinja").read_text(encoding="utf-8") if name else files.chat_template or ""
    template = JinjaTemplate.from_files(
        files,
        placeholders,
        source=source,
        turn_markers=TURN_MARKERS,
        prefix=first_token(files, by_default=model.text["model_type"] == "llama"),
        parts="['type']" in source or ".type" in source,
        slots=() if model.ends else tuple((p.modality, ("", "\n")) for p in placeholders),
    )
    return LonePictureTemplate(template) if model.tiling == "dynamic" else template


@dataclass(frozen=True, slots=True)
class LonePictureTemplate:
    """Ends a prompt's only picture with a line break, as the published code does where it cuts pictures."""

    inner: JinjaTemplate

    def render(self, messages: Sequence[Message]) -> tuple[Segment, ...]:
        return _ended(self.inner.render(messages))

    def parse(self, prompt: str, media: Sequence[Modality]) -> tuple[Segment, ...]:
        return _ended(self.inner.parse(prompt, media))


def _ended(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    pictures = [n for n, s in enumerate(segments) if isinstance(s, MediaSegment) and s.modality == "image"]
    if len(pictures) != 1:
        return segments
    after = pictures[0] + 1
    return (*segments[:after], TextSegment("\n", trusted=True), *segments[after:])
