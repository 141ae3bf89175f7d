"""The configurable decoder against transformers' own models: one row of data for each family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from mmcore.adapter import IgnoredWeight, WeightRule
from mmcore.decoder_config import DecoderConfig, LearnedPositions, RelativeBias, Rope
from mmcore.errors import CheckpointError, UnsupportedOptionError, WeightError
from mmcore.model.decoder import Decoder
from mmcore.model.relative_bias import buckets_by_distance

transformers = pytest.importorskip("transformers")

IDS = [5, 17, 3, 42, 42, 8, 1, 30, 11, 25, 9]
CUTS: tuple[list[int], ...] = ([], [4], [1, 2, 3, 10])
DEFAULT = {"rope_type": "default"}
LINEAR = {"rope_type": "linear", "factor": 4.0}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
SHAPE = DecoderConfig(
    vocab_size=48,
    hidden_size=32,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    intermediate_size=40,
    positions=Rope(),
    max_length=64,
)


def pair(source: str, target: str, *leaves: str, shard: str = "") -> list[WeightRule]:
    return [WeightRule(f"{source}.{leaf}", f"decoder.{target}.{leaf}", shard) for leaf in leaves]


def llama_rules() -> list[WeightRule]:
    layer, ours = "model.layers.{}", "layers.{}"
    rules = pair("model.embed_tokens", "embedding", "weight") + pair("model.norm", "norm", "weight")
    rules += pair("lm_head", "head", "weight")
    rules += pair(f"{layer}.input_layernorm", f"{ours}.attn_norm", "weight")
    rules += pair(f"{layer}.post_attention_layernorm", f"{ours}.mlp_norm", "weight")
    for shard in "qkv":
        rules += pair(f"{layer}.self_attn.{shard}_proj", f"{ours}.attn.qkv", "weight", shard=shard)
    rules += pair(f"{layer}.self_attn.o_proj", f"{ours}.attn.out", "weight")
    for shard in ("gate", "up"):
        rules += pair(f"{layer}.mlp.{shard}_proj", f"{ours}.mlp.gate_up", "weight", shard=shard)
    return rules + pair(f"{layer}.mlp.down_proj", f"{ours}.mlp.down", "weight")


def bart_rules(root: str, *, norm: str | None, cross: bool, out: str) -> list[WeightRule]:
    layer, ours, both = f"{root}.layers.{{}}", "layers.{}", ("weight", "bias")
    rules = pair(f"{root}.embed_tokens", "embedding", "weight")
    rules += pair(f"{root}.embed_positions", "positions", "weight")
    rules += pair(f"{root}.{norm}", "norm", *both) if norm else []
    for shard in "qkv":
        rules += pair(f"{layer}.self_attn.{shard}_proj", f"{ours}.attn.qkv", *both, shard=shard)
    rules += pair(f"{layer}.self_attn.{out}", f"{ours}.attn.out", *both)
    rules += pair(f"{layer}.self_attn_layer_norm", f"{ours}.attn_norm", *both)
    rules += pair(f"{layer}.final_layer_norm", f"{ours}.mlp_norm", *both)
    rules += pair(f"{layer}.fc1", f"{ours}.mlp.up", *both) + pair(f"{layer}.fc2", f"{ours}.mlp.down", *both)
    if cross:
        rules += pair(f"{root}.layernorm_embedding", "embed_norm", *both)
        rules += pair(f"{layer}.encoder_attn_layer_norm", f"{ours}.cross_norm", *both)
        rules += pair(f"{layer}.encoder_attn.q_proj", f"{ours}.cross.q", *both)
        rules += pair(f"{layer}.encoder_attn.{out}", f"{ours}.cross.out", *both)
        for shard in "kv":
            rules += pair(f"{layer}.encoder_attn.{shard}_proj", f"{ours}.cross.kv", *both, shard=shard)
    return rules


def randomized(model: Any) -> Any:
    """Fan-in scaled random weights, so that each part matters."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            scaled = 1 + 0.2 * noise if parameter.ndim == 1 else noise / parameter.shape[-1] ** 0.5
            parameter.copy_(scaled)
    return model.eval()


def tensors_of(model: Any) -> dict[str, Tensor]:
    """As a checkpoint holds them: a tied head once."""
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    tied = model.get_input_embeddings().weight is model.get_output_embeddings().weight
    return {name: tensor for name, tensor in state.items() if not (tied and name == "lm_head.weight")}


def compare(mine: Tensor, reference: Tensor) -> None:
    assert mine.shape == reference.shape
    error = (mine - reference).abs().max() / reference.abs().max()
    assert error <= 1e-5, f"relative error {error}"


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize(
    "scaling", [{"rope_type": "default"}, {"rope_type": "linear", "factor": 4.0}, LLAMA3]
)
def test_llama_row(
    load: Callable[..., Any], chunked: Callable[..., Any], scaling: Mapping[str, Any], cuts: list[int]
) -> None:
    theirs = randomized(
        transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=48,
                hidden_size=32,
                intermediate_size=40,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                max_position_embeddings=256,
                rope_parameters={"rope_theta": 500.0, **scaling},
            )
        )
    )
    rope = Rope(theta=500.0, scaling=tuple(sorted(scaling.items())))
    model = load(replace(SHAPE, positions=rope), tensors_of(theirs), llama_rules())
    with torch.inference_mode():
        compare(chunked(model.decoder, IDS, cuts), theirs(torch.tensor([IDS])).logits[0])


@pytest.mark.parametrize("cuts", CUTS)
def test_opt_row(load: Callable[..., Any], chunked: Callable[..., Any], cuts: list[int]) -> None:
    theirs = randomized(
        transformers.OPTForCausalLM(
            transformers.OPTConfig(
                vocab_size=48,
                hidden_size=32,
                word_embed_proj_dim=32,
                ffn_dim=40,
                num_hidden_layers=2,
                num_attention_heads=4,
                max_position_embeddings=64,
                pad_token_id=1,
            )
        )
    )
    config = replace(
        SHAPE,
        num_kv_heads=4,
        positions=LearnedPositions(66, offset=2),
        norm="layer",
        norm_eps=1e-5,
        activation="relu",
        gated=False,
        q_bias=True,
        k_bias=True,
        v_bias=True,
        out_bias=True,
        mlp_bias=True,
        tied_head=True,
    )
    rules = bart_rules("model.decoder", norm="final_layer_norm", cross=False, out="out_proj")
    model = load(config, tensors_of(theirs), rules)
    with torch.inference_mode():
        compare(chunked(model.decoder, IDS, cuts), theirs(torch.tensor([IDS])).logits[0])


def cross_config(**changes: Any) -> DecoderConfig:
    return replace(
        SHAPE,
        num_kv_heads=4,
        positions=LearnedPositions(66, offset=2),
        norm="layer",
        norm_eps=1e-5,
        activation="gelu",
        gated=False,
        q_bias=True,
        k_bias=True,
        v_bias=True,
        out_bias=True,
        mlp_bias=True,
        tied_head=True,
        embed_norm=True,
        cross_attention=True,
        cross_width=32,
        **changes,
    )


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("name", ["MBart", "Bart"])
def test_cross_attention_rows(
    load: Callable[..., Any], chunked: Callable[..., Any], name: str, cuts: list[int]
) -> None:
    """MBart: norm before, scaled embedding, final norm. Bart: norm after, none of these."""
    before = name == "MBart"
    config = getattr(transformers, f"{name}Config")(
        vocab_size=48,
        d_model=32,
        decoder_ffn_dim=40,
        decoder_layers=2,
        decoder_attention_heads=4,
        max_position_embeddings=64,
        scale_embedding=before,
        is_decoder=True,
        add_cross_attention=True,
    )
    theirs = randomized(getattr(transformers, f"{name}ForCausalLM")(config))
    ours = cross_config(post_norm=not before, final_norm=before, embed_scale=32**0.5 if before else 1.0)
    rules = bart_rules("model.decoder", norm="layer_norm" if before else None, cross=True, out="out_proj")
    model = load(ours, tensors_of(theirs), rules)
    states = torch.randn(7, 32, generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        reference = theirs(torch.tensor([IDS]), encoder_hidden_states=states[None]).logits[0]
    compare(chunked(model.decoder, IDS, cuts, states), reference)


def t5_rules() -> list[WeightRule]:
    layer, ours = "decoder.block.{}.layer", "layers.{}"
    rules = pair("shared", "embedding", "weight") + pair("lm_head", "head", "weight")
    rules += pair("decoder.final_layer_norm", "norm", "weight")
    first = "decoder.block.0.layer.0.SelfAttention.relative_attention_bias"
    rules += pair(first, "relative_bias", "weight")
    for number, norm in enumerate(("attn_norm", "cross_norm", "mlp_norm")):
        rules += pair(f"{layer}.{number}.layer_norm", f"{ours}.{norm}", "weight")
    for shard in "qkv":
        rules += pair(f"{layer}.0.SelfAttention.{shard}", f"{ours}.attn.qkv", "weight", shard=shard)
        into = ("cross.q", "") if shard == "q" else ("cross.kv", shard)
        rules += pair(f"{layer}.1.EncDecAttention.{shard}", f"{ours}.{into[0]}", "weight", shard=into[1])
    rules += pair(f"{layer}.0.SelfAttention.o", f"{ours}.attn.out", "weight")
    rules += pair(f"{layer}.1.EncDecAttention.o", f"{ours}.cross.out", "weight")
    for shard, name in (("gate", "wi_0"), ("up", "wi_1")):
        rules += pair(f"{layer}.2.DenseReluDense.{name}", f"{ours}.mlp.gate_up", "weight", shard=shard)
    return rules + pair(f"{layer}.2.DenseReluDense.wo", f"{ours}.mlp.down", "weight")


@pytest.mark.parametrize("cuts", CUTS)
def test_t5_row(load: Callable[..., Any], chunked: Callable[..., Any], cuts: list[int]) -> None:
    """One relative bias for all layers, no scale; distances past the largest bucket occur."""
    theirs = transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=48,
            d_model=32,
            d_kv=8,
            d_ff=40,
            num_layers=1,
            num_decoder_layers=2,
            num_heads=4,
            relative_attention_num_buckets=6,
            relative_attention_max_distance=9,
            feed_forward_proj="gated-gelu",
            tie_word_embeddings=False,
        )
    )
    theirs.lm_head.weight = torch.nn.Parameter(torch.empty(48, 32))  # untied, as the published files
    randomized(theirs)
    config = replace(
        SHAPE,
        num_kv_heads=4,
        positions=RelativeBias(6, 9),
        activation="gelu_tanh",
        attention_scale=1.0,
        cross_attention=True,
        cross_width=32,
    )
    tensors = {
        name: tensor
        for name, tensor in tensors_of(theirs).items()
        if name.startswith(("decoder.block", "decoder.final", "shared", "lm_head"))
    }
    model = load(config, tensors, t5_rules())
    states = torch.randn(7, 32, generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        reference = theirs(decoder_input_ids=torch.tensor([IDS]), encoder_outputs=(states[None],)).logits[0]
    compare(chunked(model.decoder, IDS, cuts, states), reference)


@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (6, 9), (8, 100)])
def test_buckets_are_the_reference_s(buckets: int, farthest: int) -> None:
    from transformers.models.t5.modeling_t5 import T5Attention

    distance = torch.arange(4 * farthest)
    bucket: Any = T5Attention._relative_position_bucket
    wanted = bucket(-distance, False, buckets, farthest)
    found = buckets_by_distance(RelativeBias(buckets, farthest))
    assert torch.equal(found[distance.clamp(max=farthest)], wanted)


def test_tied_head_stored_twice_is_ignored_by_name(load: Callable[..., Any]) -> None:
    embed = torch.randn(48, 32)
    tensors = {"embed": embed, "lm_head.weight": embed.clone()}
    assert torch.equal(load_tied(load, tensors).decoder.embedding.weight, embed)


def test_a_head_that_is_said_to_be_tied_and_differs_is_told(load: Callable[..., Any]) -> None:
    """To leave it out would give other logits than its authors' model, silently."""
    tensors = {"embed": torch.randn(48, 32), "lm_head.weight": torch.randn(48, 32)}
    with pytest.raises(
        WeightError, match=r"'lm_head\.weight' .*stored twice.*not those of 'embed'; is tie_word"
    ):
        load_tied(load, tensors)


def load_tied(load: Callable[..., Any], tensors: dict[str, torch.Tensor]) -> Any:
    config = replace(SHAPE, num_layers=0, final_norm=False, tied_head=True)
    rules = [WeightRule("embed", "decoder.embedding.weight")]
    twice = IgnoredWeight("lm_head.weight", "it is stored twice", same_as="decoder.embedding.weight")
    return load(config, tensors, rules, [twice])


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"positions": RelativeBias(32, 128, bidirectional=True)}, "RelativeBias"),
        ({"feature_levels": 2}, "feature_levels"),
        ({"tied_head": True, "head_bias": True}, "head_bias"),
        ({"positions": Rope(scaling=(("rope_type", "yarn"),))}, "yarn"),
    ],
)
def test_what_is_not_built_is_refused_by_name(change: dict[str, Any], word: str) -> None:
    with pytest.raises(UnsupportedOptionError, match=word):
        Decoder(replace(SHAPE, **change))


def test_sections_that_do_not_fill_the_head_are_refused() -> None:
    with pytest.raises(CheckpointError, match="mrope_section"):
        Decoder(replace(SHAPE, positions=Rope(sections=(1, 1))))
