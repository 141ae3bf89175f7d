"""The Whisper adapter: one window of sound, its rows cross-attended by the decoder."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mmcore.adapter import (
    Adapter,
    CheckpointFiles,
    Fusion,
    IgnoredWeight,
    MediaLimits,
    MediaOps,
    WeightRule,
)
from mmcore.decoder_config import DecoderConfig, LearnedPositions
from mmcore.errors import CheckpointError, MediaLimitError, UnsupportedOptionError
from mmcore.parts.fields import reads_checkpoint
from mmcore.request import DecodedMedia, EncodeCost, EncoderInput, ItemPlan, MediaInfo, Modality, SourceSpec
from mmcore_whisper.decoding import WindowPlan, read_decoding
from mmcore_whisper.prompt import WhisperPrompt
from mmcore_whisper.windows import FRAMES_A_ROW

if TYPE_CHECKING:
    from mmcore_whisper.encoder import WhisperTower

_NORM_EPS = 1e-5


_MARGIN = 2
"""Frames beside a span whose sound reaches into it: half a transform is 1.25 hops."""
_DECADES = 2.0
"""How far below the loudest value the spectrogram is cut: 8 decades, 4 to a unit."""
_SURVEY_FRAMES = 6_000
"""Of a recording looked through at once: one minute."""


@dataclass(frozen=True, slots=True)
class WhisperInputs:
    """One window of a recording, ``rows`` encoder rows long (30 s in every release).

    The window is cut from the spectrogram of the whole recording, as the long-form transcription of
    transformers does it: the sound around the cut counts, and so does ``peak``, the loudest value of all.
    ``start`` is its first frame. What is shorter than a window is padded with silence.
    """

    mels: int
    rows: int
    width: int
    fft: int = 400
    hop: int = 160
    sample_rate: int = 16_000
    modalities: tuple[Modality, ...] = ("audio",)
    start: int = 0
    peak: float | None = None

    @property
    def frames(self) -> int:
        """Spectrogram frames of the window."""
        return self.rows * FRAMES_A_ROW

    @property
    def window(self) -> int:
        """Samples of the window at ``sample_rate``."""
        return self.frames * self.hop

    @property
    def limits(self) -> Mapping[Modality, MediaLimits]:
        return {"audio": MediaLimits(min_samples=1, max_items=1, sample_rate=self.sample_rate)}

    def measure(self, infos: Sequence[MediaInfo], options: Sequence[WhisperInputs]) -> tuple[ItemPlan, ...]:
        return tuple(window._plan(info) for window, info in zip(options, infos, strict=True))

    def _plan(self, info: MediaInfo) -> ItemPlan:
        total = self._total_frames(info)
        if self.start > max(0, total - 1):
            raise MediaLimitError(f"the recording has {total} frames: none is left at start={self.start}")
        window = WindowPlan(
            start=self.start,
            frames=min(self.frames, total - self.start),
            total=total,
            seconds=info.samples / info.sample_rate,
        )
        return ItemPlan(
            pieces=(),
            rows=self.rows,
            width=self.width,
            geometry=(window.start, window.frames, window.total),
            times=(window.seconds,),
            source=self._span(self.start, self.frames),
        )

    def _total_frames(self, info: MediaInfo) -> int:
        return -(-info.samples * self.sample_rate // info.sample_rate) // self.hop

    def _span(self, start: int, frames: int) -> SourceSpec:
        """The samples that ``frames`` frames from ``start`` on are made of."""
        return SourceSpec(
            sample_rate=self.sample_rate,
            start=max(0, start - _MARGIN) * self.hop,
            stop=(start + frames + _MARGIN) * self.hop,
        )

    def survey(
        self, info: MediaInfo, read: Callable[[SourceSpec], DecodedMedia], ops: MediaOps
    ) -> Mapping[str, Any]:
        """``peak`` of a recording longer than a window; `Adapter.survey`."""
        total = self._total_frames(info)
        if total <= self.frames:
            return {}
        peaks = []
        for start in range(0, total, _SURVEY_FRAMES):
            samples = read(self._span(start, _SURVEY_FRAMES)).data
            peaks.append(self._spectrogram(samples, start, _SURVEY_FRAMES, ops).max(initial=-math.inf))
        return {"peak": float(max(peaks))}

    def preprocess(self, media: DecodedMedia, plan: ItemPlan, ops: MediaOps) -> EncoderInput:
        """``features`` float32 [mels, 2 * rows]; zeros after the last frame of a longer recording."""
        begin = max(0, self.start - _MARGIN) * self.hop
        samples = np.zeros(max(len(media.data), self.window - begin), np.float32)
        samples[: len(media.data)] = media.data
        found = self._spectrogram(samples, self.start, self.frames, ops)
        if self.peak is not None:
            found = np.maximum(found, np.float32(self.peak - _DECADES))
        features = np.zeros((self.mels, self.frames), np.float32)
        features[:, : found.shape[1]] = found
        return EncoderInput({"features": features})

    def _spectrogram(self, samples: np.ndarray, start: int, frames: int, ops: MediaOps) -> np.ndarray:
        """At most ``frames`` frames from ``start`` on, of what `_span` gave; cut below its own loudest value,
        which is never above the recording's."""
        found = ops.log_mel(samples, mels=self.mels, fft=self.fft, hop=self.hop, sample_rate=self.sample_rate)
        lead = min(start, _MARGIN)
        return found[:, lead : lead + frames]

    def with_options(self, options: Mapping[str, Any]) -> WhisperInputs:
        """``start`` and ``peak``, which the chain of windows sets."""
        unknown = sorted(options.keys() - {"start", "peak"})
        if unknown:
            raise UnsupportedOptionError(
                f"Whisper's input has no option {unknown[0]!r}; language and task are decoder_options"
            )
        start, peak = options.get("start", self.start), options.get("peak", self.peak)
        if not isinstance(start, int) or start < 0 or not isinstance(peak, float | None):
            raise UnsupportedOptionError(f"start={start!r} is a frame's number, peak={peak!r} a level")
        return replace(self, start=start, peak=peak)


@dataclass(frozen=True, slots=True)
class WhisperEncoder:
    """The tower's sizes."""

    mels: int
    rows: int
    width: int
    layers: int
    heads: int
    intermediate: int

    def build(self) -> WhisperTower:
        from mmcore.model.vit import TowerConfig
        from mmcore_whisper.encoder import WhisperTower

        block = TowerConfig(
            width=self.width,
            heads=self.heads,
            intermediate=self.intermediate,
            activation="gelu",
            norm_eps=_NORM_EPS,
            k_bias=False,
        )
        return WhisperTower(block, self.layers, self.mels, self.rows)

    def collate(self, inputs: Sequence[EncoderInput], plans: Sequence[ItemPlan]) -> Mapping[str, np.ndarray]:
        return {"features": np.stack([item.arrays["features"] for item in inputs])}

    def cost(self, plan: ItemPlan) -> EncodeCost:
        """Two operations a weight and row, and attention's two products."""
        width = self.width
        convolutions = 3 * width * (FRAMES_A_ROW * self.mels + width)
        layer = width * (4 * width + 2 * self.intermediate) + 2 * plan.rows * width
        return EncodeCost(work=2 * plan.rows * (convolutions + self.layers * layer))


class WhisperAdapter:
    """``WhisperForConditionalGeneration`` checkpoints of any size."""

    @staticmethod
    @reads_checkpoint
    def from_config(config: Mapping[str, Any], files: CheckpointFiles) -> Adapter:
        """Raises `CheckpointError` for a config that lacks a size or a tokenizer that is not Whisper's."""
        missing = sorted(_SIZES - config.keys())
        if missing:
            raise CheckpointError(f"config.json lacks {', '.join(missing)}: it is not a Whisper checkpoint")
        if config.get("activation_function", "gelu") != "gelu":
            raise CheckpointError(
                f"activation_function {config['activation_function']!r} is not Whisper's gelu"
            )
        tied = config.get("tie_word_embeddings", True)
        inputs = _inputs(config, files)
        return Adapter(
            name="whisper",
            prompt=WhisperPrompt(),
            inputs=inputs,
            encoder=_encoder(config),
            decoding=read_decoding(config, files, inputs.sample_rate // inputs.hop),
            decoder=_decoder(config, files),
            placeholders=(),
            weights=_WEIGHTS if tied else (*_WEIGHTS, WeightRule("proj_out.weight", "decoder.head.weight")),
            ignored=(
                IgnoredWeight(
                    "proj_out.weight", "the head is the embedding", same_as="decoder.embedding.weight"
                ),
            )
            if tied
            else (),
            fusion=Fusion.CROSS_ATTENTION,
            survey=inputs.survey,
            transcribes=True,
            dtypes=("float16", "bfloat16", "float32"),
        )


_SIZES = {
    "vocab_size",
    "num_mel_bins",
    "d_model",
    "max_source_positions",
    "max_target_positions",
    *(
        f"{side}_{size}"
        for side in ("encoder", "decoder")
        for size in ("layers", "attention_heads", "ffn_dim")
    ),
}


def _inputs(config: Mapping[str, Any], files: CheckpointFiles) -> WhisperInputs:
    stated = files.json("preprocessor_config.json")
    stated = stated or files.json("processor_config.json").get("feature_extractor", {})
    mels = stated.get("feature_size", config["num_mel_bins"])
    if mels != config["num_mel_bins"]:
        raise CheckpointError(f"feature_size {mels} and num_mel_bins {config['num_mel_bins']} must be equal")
    if stated.get("dither") or stated.get("do_normalize"):
        raise CheckpointError("preprocessor_config.json: dither and do_normalize are not built yet")
    return WhisperInputs(
        mels=mels,
        rows=config["max_source_positions"],
        width=config["d_model"],
        fft=stated.get("n_fft", 400),
        hop=stated.get("hop_length", 160),
        sample_rate=stated.get("sampling_rate", 16_000),
    )


def _encoder(config: Mapping[str, Any]) -> WhisperEncoder:
    return WhisperEncoder(
        mels=config["num_mel_bins"],
        rows=config["max_source_positions"],
        width=config["d_model"],
        layers=config["encoder_layers"],
        heads=config["encoder_attention_heads"],
        intermediate=config["encoder_ffn_dim"],
    )


def _decoder(config: Mapping[str, Any], files: CheckpointFiles) -> DecoderConfig:
    width, heads = config["d_model"], config["decoder_attention_heads"]
    alignment = files.json("generation_config.json").get("alignment_heads") or ()
    return DecoderConfig(
        vocab_size=config["vocab_size"],
        hidden_size=width,
        num_layers=config["decoder_layers"],
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=width // heads,
        intermediate_size=config["decoder_ffn_dim"],
        positions=LearnedPositions(config["max_target_positions"]),
        max_length=config["max_target_positions"],
        norm="layer",
        norm_eps=_NORM_EPS,
        activation="gelu",
        gated=False,
        q_bias=True,
        v_bias=True,
        out_bias=True,
        mlp_bias=True,
        cross_attention=True,
        cross_width=width,
        tied_head=config.get("tie_word_embeddings", True),
        alignment_heads=tuple((layer, head) for layer, head in alignment),
    )


# ------------------------------------------------------------------ weights


def _both(source: str, target: str, shard: str = "", leaves: str = "weight bias") -> tuple[WeightRule, ...]:
    return tuple(WeightRule(f"{source}.{leaf}", f"{target}.{leaf}", shard) for leaf in leaves.split())


def _attention(source: str, target: str) -> tuple[WeightRule, ...]:
    """Self-attention, fused. Whisper's keys have no bias."""
    return (
        *_both(f"{source}.q_proj", f"{target}.qkv", "q"),
        *_both(f"{source}.k_proj", f"{target}.qkv", "k", leaves="weight"),
        *_both(f"{source}.v_proj", f"{target}.qkv", "v"),
        *_both(f"{source}.out_proj", f"{target}.out"),
    )


def _layer(source: str, target: str) -> tuple[WeightRule, ...]:
    """What a layer of the encoder and one of the decoder have in common."""
    return (
        *_both(f"{source}.self_attn_layer_norm", f"{target}.attn_norm"),
        *_attention(f"{source}.self_attn", f"{target}.attn"),
        *_both(f"{source}.final_layer_norm", f"{target}.mlp_norm"),
        *_both(f"{source}.fc1", f"{target}.mlp.up"),
        *_both(f"{source}.fc2", f"{target}.mlp.down"),
    )


def _cross(source: str, target: str) -> tuple[WeightRule, ...]:
    return (
        *_both(f"{source}.encoder_attn_layer_norm", f"{target}.cross_norm"),
        *_both(f"{source}.encoder_attn.q_proj", f"{target}.cross.q"),
        *_both(f"{source}.encoder_attn.k_proj", f"{target}.cross.kv", "k", leaves="weight"),
        *_both(f"{source}.encoder_attn.v_proj", f"{target}.cross.kv", "v"),
        *_both(f"{source}.encoder_attn.out_proj", f"{target}.cross.out"),
    )


_WEIGHTS = (
    *_both("model.encoder.conv1", "encoder.conv1"),
    *_both("model.encoder.conv2", "encoder.conv2"),
    WeightRule("model.encoder.embed_positions.weight", "encoder.positions"),
    *_layer("model.encoder.layers.{}", "encoder.layers.{}"),
    *_both("model.encoder.layer_norm", "encoder.norm"),
    WeightRule("model.decoder.embed_tokens.weight", "decoder.embedding.weight"),
    WeightRule("model.decoder.embed_positions.weight", "decoder.positions.weight"),
    *_layer("model.decoder.layers.{}", "decoder.layers.{}"),
    *_cross("model.decoder.layers.{}", "decoder.layers.{}"),
    *_both("model.decoder.layer_norm", "decoder.norm"),
)
