"""The small files of a Whisper checkpoint in hub layout, made for tensors that came without them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmcore.errors import CheckpointError

Tensors = Mapping[str, np.ndarray]


def hub_files(
    tensors: Tensors,
    tokenizer: Mapping[str, Any],
    stored: Mapping[str, Any],
    *,
    heads: Mapping[str, int],
    multilingual: bool,
) -> dict[str, dict[str, Any]]:
    """File name to content. ``heads`` are a side's attention heads, ``stored`` CTranslate2's config."""
    tokens = TokenIds.read(tokenizer)
    config = _model_config(tensors, heads, tokens)
    generation = _generation_config(stored, tokens, config, multilingual)
    return {
        "config.json": config,
        "generation_config.json": generation | (_multilingual_config(tokens) if multilingual else {}),
        "preprocessor_config.json": _preprocessor_config(config),
        "tokenizer_config.json": _tokenizer_config(tokens),
    }


@dataclass(frozen=True, slots=True)
class TokenIds:
    """Whisper's special tokens by their texts, read from ``tokenizer.json``."""

    by_text: Mapping[str, int]

    @classmethod
    def read(cls, tokenizer: Mapping[str, Any]) -> TokenIds:
        return cls({token["content"]: int(token["id"]) for token in tokenizer["added_tokens"]})

    def __getitem__(self, text: str) -> int:
        if text not in self.by_text:
            raise CheckpointError(f"tokenizer.json has no token {text}: it is not a Whisper tokenizer")
        return self.by_text[text]

    def texts(self, first: int, last: int) -> list[str]:
        """Texts of the ids from ``first`` to ``last``, in id order."""
        in_order = sorted(self.by_text.items(), key=lambda entry: entry[1])
        return [text for text, token_id in in_order if first <= token_id <= last]


def _model_config(tensors: Tensors, heads: Mapping[str, int], tokens: TokenIds) -> dict[str, Any]:
    convolution = _tensor(tensors, "model.encoder.conv1.weight")  # [width, mels, 3]
    end = tokens["<|endoftext|>"]
    return {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "activation_function": "gelu",
        "is_encoder_decoder": True,
        "num_mel_bins": convolution.shape[1],
        "d_model": convolution.shape[0],
        "vocab_size": len(_tensor(tensors, "model.decoder.embed_tokens.weight")),
        **_side_sizes(tensors, "encoder", heads["encoder"]),
        **_side_sizes(tensors, "decoder", heads["decoder"]),
        "max_source_positions": len(_tensor(tensors, "model.encoder.embed_positions.weight")),
        "max_target_positions": len(_tensor(tensors, "model.decoder.embed_positions.weight")),
        "scale_embedding": False,
        "tie_word_embeddings": True,
        "bos_token_id": end,
        "eos_token_id": end,
        "pad_token_id": end,
        "decoder_start_token_id": tokens["<|startoftranscript|>"],
        "dtype": str(convolution.dtype),
    }


def _tensor(tensors: Tensors, name: str) -> np.ndarray:
    if name not in tensors:
        raise CheckpointError(f"the model has no tensor {name}: it is not a whole Whisper model")
    return tensors[name]


def _side_sizes(tensors: Tensors, side: str, heads: int) -> dict[str, int]:
    start = f"model.{side}.layers."
    return {
        f"{side}_layers": len({name.split(".")[3] for name in tensors if name.startswith(start)}),
        f"{side}_attention_heads": heads,
        f"{side}_ffn_dim": len(_tensor(tensors, f"{start}0.fc1.weight")),
    }


def _generation_config(
    stored: Mapping[str, Any], tokens: TokenIds, config: Mapping[str, Any], multilingual: bool
) -> dict[str, Any]:
    end = config["eos_token_id"]
    return {
        "alignment_heads": stored.get("alignment_heads", []),
        "begin_suppress_tokens": stored.get("suppress_ids_begin", []),
        "suppress_tokens": stored.get("suppress_ids", []),
        "bos_token_id": end,
        "eos_token_id": end,
        "pad_token_id": end,
        "decoder_start_token_id": config["decoder_start_token_id"],
        "is_multilingual": multilingual,
        "max_length": config["max_target_positions"],
        "max_initial_timestamp_index": 50,
        "no_timestamps_token_id": tokens["<|notimestamps|>"],
        "prev_sot_token_id": tokens["<|startofprev|>"],
        "return_timestamps": False,
    }


def _multilingual_config(tokens: TokenIds) -> dict[str, Any]:
    translate, transcribe = tokens["<|translate|>"], tokens["<|transcribe|>"]
    languages = tokens.texts(tokens["<|startoftranscript|>"] + 1, min(translate, transcribe) - 1)
    return {
        "forced_decoder_ids": [[1, None], [2, transcribe]],
        "lang_to_id": {text: tokens[text] for text in languages},
        "task_to_id": {"transcribe": transcribe, "translate": translate},
    }


def is_multilingual(vocab_size: int) -> bool:
    """OpenAI's rule: English-only checkpoints have 51,864 tokens, the others one or two more."""
    return vocab_size >= 51_865


def _tokenizer_config(tokens: TokenIds) -> dict[str, Any]:
    end = "<|endoftext|>"
    extra = tokens.texts(tokens["<|startoftranscript|>"], tokens["<|notimestamps|>"])
    return {
        "tokenizer_class": "WhisperTokenizer",
        "additional_special_tokens": extra,
        "bos_token": end,
        "eos_token": end,
        "unk_token": end,
        "pad_token": end,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1024,
    }


def _preprocessor_config(config: Mapping[str, Any]) -> dict[str, Any]:
    rate, hop = 16_000, 160
    samples = 2 * config["max_source_positions"] * hop
    return {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "WhisperProcessor",
        "feature_size": config["num_mel_bins"],
        "sampling_rate": rate,
        "hop_length": hop,
        "n_fft": 400,
        "chunk_length": samples // rate,
        "n_samples": samples,
        "nb_max_frames": samples // hop,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": False,
    }
