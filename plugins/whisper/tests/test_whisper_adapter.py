"""What the adapter reads from a checkpoint, what a request may ask, and what is refused."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from mmcore_whisper.adapter import WhisperAdapter, WhisperInputs
from mmcore_whisper.languages import CODES, language_code
from mmcore_whisper.testing import write_tiny_checkpoint
from safetensors.torch import load_file, save_file

from mmcore.adapter import Adapter, Fusion, Generation
from mmcore.errors import (
    CheckpointError,
    MediaLimitError,
    PlaceholderMismatchError,
    PromptError,
    UnsupportedOptionError,
    WeightError,
)
from mmcore.inputs.checkpoint import Checkpoint
from mmcore.model.weights import Model, build_model, load_weights
from mmcore.request import (
    EncodeCost,
    EncodedSource,
    MediaInfo,
    MediaPart,
    Message,
    PreparedItem,
    PreparedRequest,
    TextPart,
    TextSegment,
)
from mmcore.sampling_params import SamplingParams


def read(folder: Path) -> Adapter:
    checkpoint = Checkpoint(folder)
    return WhisperAdapter.from_config(checkpoint.config, checkpoint)


def change(folder: Path, name: str, **fields: Any) -> Path:
    """Change fields of a JSON file; None drops one."""
    content = json.loads((folder / name).read_text()) | fields
    kept = {key: value for key, value in content.items() if value is not None}
    (folder / name).write_text(json.dumps(kept))
    return folder


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    """A copy of the checkpoint's tensors: its file may be written again."""
    return {name: tensor.clone() for name, tensor in load_file(folder / "model.safetensors").items()}


def load(folder: Path) -> Model:
    adapter = read(folder)
    model = build_model(adapter, torch.float32, torch.device("cpu"))
    load_weights(model, adapter, [folder / "model.safetensors"])
    return model


def ids(tiny: Any, *tokens: str) -> tuple[int, ...]:
    return tuple(tiny.checkpoint.tokenizer.token_id(token) for token in tokens)


START, NONE = "<|startoftranscript|>", "<|notimestamps|>"


# ------------------------------------------------------------------ the decoder prefix


@pytest.mark.parametrize(
    ("options", "tokens"),
    [
        ({}, ("<|en|>", "<|transcribe|>")),
        ({"language": "de"}, ("<|de|>", "<|transcribe|>")),
        ({"language": "German", "task": "translate"}, ("<|de|>", "<|translate|>")),
        ({"language": "<|fr|>"}, ("<|fr|>", "<|transcribe|>")),
        ({"task": "translate"}, ("<|en|>", "<|translate|>")),
    ],
)
def test_multilingual_prefix(tiny_of: Any, options: dict[str, str], tokens: tuple[str, ...]) -> None:
    tiny = tiny_of("multilingual")
    assert tiny.adapter.decoding.prefix(options) == ids(tiny, START, *tokens, NONE)


@pytest.mark.parametrize("options", [{}, {"language": "en"}, {"language": "english", "task": "transcribe"}])
def test_english_only_prefix_names_neither_language_nor_task(tiny_of: Any, options: dict[str, str]) -> None:
    tiny = tiny_of("english")
    assert tiny.adapter.decoding.prefix(options) == ids(tiny, START, NONE)


@pytest.mark.parametrize(
    ("variant", "options", "words"),
    [
        ("multilingual", {"language": "xx"}, "language='xx'"),
        ("multilingual", {"language": 7}, "language=7"),
        ("multilingual", {"task": "sing"}, "transcribe, translate"),
        ("multilingual", {"timestamps": "word"}, "timestamps='word'"),
        ("multilingual", {"language": None, "task": "sing"}, "task='sing'"),
        ("multilingual", {"initial_prompt": 7}, "initial_prompt is a text"),
        ("multilingual", {"beams": 5}, "'beams'.*language, task, timestamps, initial_prompt"),
        ("multilingual", {"language": "yue"}, "language='yue'"),
        ("english", {"language": "de"}, "language='de'"),
        ("english", {"task": "translate"}, "task='translate'"),
    ],
)
def test_prefix_options_that_are_refused(
    tiny_of: Any, variant: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(UnsupportedOptionError, match=words):
        tiny_of(variant).adapter.decoding.prefix(options)


def test_an_unnamed_language_is_left_to_the_first_link(tiny_of: Any) -> None:
    tiny = tiny_of("multilingual")
    assert tiny.adapter.decoding.prefix({"language": None, "timestamps": "segment"}) == ids(tiny, START)
    english = tiny_of("english")
    assert english.adapter.decoding.prefix({"language": None}) == ids(english, START, NONE)


def test_an_initial_prompt_goes_before_as_the_reference_puts_it(tiny: Any) -> None:
    """Its special tokens are plain text; of a long one the end counts, half of the context less one."""
    from transformers import WhisperTokenizer

    tokenizer = WhisperTokenizer.from_pretrained(tiny.folder)
    start = ids(tiny, START)[0]
    for text in ("Godot", "  Pozzo, Lucky. ", "x" * 100):
        prefix = tiny.adapter.decoding.prefix({"initial_prompt": text, "timestamps": "segment"})
        expected = tokenizer.get_prompt_ids(text).tolist()
        assert list(prefix[: prefix.index(start)]) == [expected[0], *expected[1:][-31:]]
    typed = tiny.adapter.decoding.prefix({"initial_prompt": "<|endoftext|>"})
    assert tiny.adapter.decoding.tokens.end not in typed
    assert tiny.adapter.decoding.prefix({"initial_prompt": ""}) == tiny.adapter.decoding.prefix({})


def test_prefix_equals_the_reference(tiny_of: Any) -> None:
    tiny = tiny_of("multilingual")
    generation = tiny.reference.generation_config
    for language, task in (("en", "transcribe"), ("jw", "translate")):
        expected = [generation.decoder_start_token_id, generation.lang_to_id[f"<|{language}|>"]]
        expected += [generation.task_to_id[task], generation.no_timestamps_token_id]
        prefix = tiny.adapter.decoding.prefix({"language": language, "task": task})
        assert list(prefix) == expected


def test_the_checkpoint_says_which_language_and_task_are_default(tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path)
    tokenizer = Checkpoint(tmp_path).tokenizer
    forced = [[1, tokenizer.token_id("<|it|>")], [2, tokenizer.token_id("<|translate|>")]]
    change(tmp_path, "generation_config.json", forced_decoder_ids=forced)
    decoding = read(tmp_path).decoding
    assert decoding.prefix({}) == decoding.prefix({"language": "it", "task": "translate"})
    change(tmp_path, "generation_config.json", language="<|es|>", task="transcribe")
    assert read(tmp_path).decoding.prefix({}) == decoding.prefix({"language": "es", "task": "transcribe"})


def test_codes_and_names_of_languages() -> None:
    assert (len(CODES), CODES[0], CODES[-1]) == (100, "en", "yue")
    assert [language_code(name) for name in ("Haitian Creole", "castilian", " EN ")] == ["ht", "es", "en"]


# ------------------------------------------------------------------ prompts


@pytest.mark.parametrize("prompt", ["", "  ", START])
def test_an_empty_prompt_means_the_default_prefix(tiny: Any, prompt: str) -> None:
    assert tiny.adapter.prompt.parse(prompt, ["audio"]) == ()


def test_a_decoder_prompt_is_taken_as_it_stands(tiny: Any) -> None:
    prompt = f"<|startofprev|> Godot{START}<|en|><|transcribe|>{NONE}"
    assert tiny.adapter.prompt.parse(prompt, ["audio"]) == (TextSegment(prompt, trusted=True),)


def test_words_are_no_prompt(tiny: Any) -> None:
    with pytest.raises(PromptError, match="decoder prompt"):
        tiny.adapter.prompt.parse("Please write down what you hear", ["audio"])
    with pytest.raises(PromptError, match="takes no instructions"):
        tiny.adapter.prompt.render([Message("user", (MediaPart("audio"), TextPart("Write it down")))])


def test_a_message_with_one_recording(tiny: Any) -> None:
    assert tiny.adapter.prompt.render([Message("user", (MediaPart("audio"), TextPart("\n")))]) == ()


@pytest.mark.parametrize("media", [[], ["audio", "audio"], ["image"]])
def test_exactly_one_recording(tiny: Any, media: list[str]) -> None:
    with pytest.raises(PlaceholderMismatchError, match="exactly one medium"):
        tiny.adapter.prompt.parse("", media)
    with pytest.raises(PlaceholderMismatchError, match="exactly one medium"):
        tiny.adapter.prompt.render([Message("user", tuple(map(MediaPart, media)))])


# ------------------------------------------------------------------ sound


def test_a_window_of_a_longer_recording_is_planned_with_the_sound_around_it() -> None:
    inputs = WhisperInputs(mels=80, rows=1500, width=512)
    info = MediaInfo("audio", sample_rate=44_100, samples=75 * 44_100)
    first, last = (inputs.with_options({"start": start, "peak": 1.0}) for start in (0, 7_000))
    (plan,) = inputs.measure([info], [first])
    assert (plan.geometry, plan.times) == ((0, 3_000, 7_500), (75.0,))
    assert (plan.source.start, plan.source.stop) == (0, 3_002 * 160)
    (plan,) = inputs.measure([info], [last])
    assert plan.geometry == (7_000, 500, 7_500)
    assert plan.source.start == 6_998 * 160


def test_a_window_beyond_the_recording_is_refused() -> None:
    inputs = WhisperInputs(mels=80, rows=1500, width=512)
    info = MediaInfo("audio", sample_rate=16_000, samples=16_000)
    with pytest.raises(MediaLimitError, match="100 frames: none is left at start=100"):
        inputs.measure([info], [inputs.with_options({"start": 100})])


@pytest.mark.parametrize("options", [{"start": -1}, {"start": "0"}, {"peak": "loud"}])
def test_window_options_are_checked(tiny: Any, options: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedOptionError, match="start="):
        tiny.adapter.inputs.with_options(options)


def test_processor_options_are_refused_by_name(tiny: Any) -> None:
    with pytest.raises(UnsupportedOptionError, match="'fps'"):
        tiny.adapter.inputs.with_options({"fps": 2})
    assert tiny.adapter.inputs.with_options({}) == tiny.adapter.inputs


# ------------------------------------------------------------------ answers


def finished(tiny: Any, prompt: tuple[int, ...], text: str) -> Any:
    (plan,) = tiny.adapter.inputs.measure(
        [MediaInfo("audio", sample_rate=16_000, samples=8_000)], [tiny.adapter.inputs]
    )
    item = PreparedItem(
        modality="audio",
        source=EncodedSource(b""),
        content_digest=b"",
        plan=plan,
        cost=EncodeCost(0),
        processor_key=b"",
        encoder_key=b"",
    )
    request = PreparedRequest(
        request_id="r", token_ids=prompt, sampling=SamplingParams(), root_key=b"", items=(item,)
    )
    return tiny.adapter.decoding.finish(Generation(request=request, ids=(1, 2), text=text))


def test_answers_carry_language_and_task(tiny_of: Any) -> None:
    tiny = tiny_of("multilingual")
    prompt = tiny.adapter.decoding.prefix({"language": "de", "task": "translate"})
    result = finished(tiny, prompt, " Hello")
    heard = {"duration": 0.5, "position": 0.5}
    assert (result.text, dict(result.fields)) == (" Hello", {"language": "de", "task": "translate", **heard})
    bare = finished(tiny, prompt[:1], " Hello")
    assert dict(bare.fields) == {"language": None, "task": None, **heard}


def test_an_english_only_checkpoint_answers_in_english(tiny_of: Any) -> None:
    tiny = tiny_of("english")
    result = finished(tiny, tiny.adapter.decoding.prefix({}), " Hello")
    assert result.fields[:2] == (("language", "en"), ("task", "transcribe"))


def test_timestamps_are_no_part_of_the_text(tiny_of: Any) -> None:
    tiny = tiny_of("multilingual")
    text = "<|0.00|> No matter.<|1.52|><|1.52|> Try again, <1.5|>.<|3.00|>"
    assert finished(tiny, (1,), text).text == " No matter. Try again, <1.5|>."


# ------------------------------------------------------------------ checkpoints


def test_what_the_adapter_reads(tiny: Any) -> None:
    adapter, generation = tiny.adapter, tiny.reference.generation_config
    defaults = adapter.decoding.defaults
    assert adapter.fusion is Fusion.CROSS_ATTENTION
    assert defaults.stop_ids == (generation.eos_token_id,)
    assert list(defaults.suppress_ids) == generation.suppress_tokens
    assert list(defaults.first_suppress_ids) == generation.begin_suppress_tokens
    assert adapter.decoder.max_length == tiny.reference.config.max_target_positions
    assert adapter.decoder.alignment_heads == ((adapter.decoder.num_layers - 1, 0),)
    assert pickle.loads(pickle.dumps(adapter.inputs)) == adapter.inputs


def test_processor_config_is_read_too(tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path)
    stated = json.loads((tmp_path / "preprocessor_config.json").read_text()) | {"hop_length": 80}
    (tmp_path / "preprocessor_config.json").unlink()
    (tmp_path / "processor_config.json").write_text(json.dumps({"feature_extractor": stated}))
    inputs = read(tmp_path).inputs
    assert isinstance(inputs, WhisperInputs)
    assert inputs.window == 8_000


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("config.json", {"d_model": None}, "lacks d_model"),
        ("config.json", {"activation_function": "relu"}, "activation_function 'relu'"),
        ("config.json", {"num_mel_bins": 128}, "feature_size 80 and num_mel_bins 128"),
        ("preprocessor_config.json", {"dither": 0.1}, "dither"),
    ],
)
def test_checkpoints_that_are_refused(tmp_path: Path, name: str, fields: dict[str, Any], words: str) -> None:
    write_tiny_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match=words):
        read(change(tmp_path, name, **fields))


def test_a_tokenizer_of_another_family_is_refused(tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path)
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    change(tmp_path, "tokenizer.json", added_tokens=tokenizer["added_tokens"][:1], post_processor=None)
    with pytest.raises(CheckpointError, match=r"no <\|startoftranscript\|>"):
        read(tmp_path)


def test_a_stored_head_is_left_out_when_tied_and_used_when_not(tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path)
    weights = weights_of(tmp_path)
    embedding = weights["model.decoder.embed_tokens.weight"]
    hidden = torch.randn(1, embedding.shape[1])
    save_file(weights | {"proj_out.weight": embedding.clone()}, tmp_path / "model.safetensors")
    assert torch.allclose(load(tmp_path).decoder.logits(hidden), hidden @ embedding.T, atol=1e-5)
    head = torch.randn(embedding.shape)
    save_file(weights | {"proj_out.weight": head}, tmp_path / "model.safetensors")
    with pytest.raises(WeightError, match="tie_word_embeddings"):
        load(tmp_path)
    change(tmp_path, "config.json", tie_word_embeddings=False)
    assert torch.allclose(load(tmp_path).decoder.logits(hidden), hidden @ head.T, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["model.encoder.conv1.bias", "model.decoder.layers.1.encoder_attn.k_proj.weight"]
)
def test_a_missing_tensor_is_named(tmp_path: Path, name: str) -> None:
    write_tiny_checkpoint(tmp_path)
    weights = weights_of(tmp_path)
    del weights[name]
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(WeightError, match=name):
        load(tmp_path)


def test_importing_the_adapter_imports_no_torch() -> None:
    code = "import sys, mmcore_whisper, mmcore_whisper.adapter; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_importing_the_manifest_imports_no_numpy() -> None:
    code = "import sys, mmcore_whisper; sys.exit(bool({'numpy', 'torch'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
