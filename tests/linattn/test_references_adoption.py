"""adopt() on layers of public packages: every option that ours has, and those it has not."""

import warnings
from collections.abc import Callable
from importlib import metadata
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import linattn
from adopted_models import HYBRID, MODEL, mamba2, minimax, qwen3_next
from linattn.adoption import PEERS
from linattn.adoption.contract import layer_name
from linattn_runtime_checks.contract.verdict import K
from timm_layers import lite_mla
from transformers_layers import drawn, module

pytestmark = pytest.mark.references

HEADS: dict[str, Any] = {"dim": MODEL, "heads": 4, "dim_head": 8}


def linformer(**options: Any) -> nn.Module:
    from linformer import LinformerSelfAttention

    made: nn.Module = LinformerSelfAttention(seq_len=100, k=8, **(HEADS | options))
    return made


def efficient(**options: Any) -> nn.Module:
    from linear_attention_transformer.linear_attention_transformer import SelfAttention

    made: nn.Module = SelfAttention(**(HEADS | options))
    return made


def performer(name: str, **options: Any) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # distutils
        import performer_pytorch

    kind = getattr(performer_pytorch, name)
    made: nn.Module = kind(8, **options) if name == "FastAttention" else kind(**(HEADS | options))
    return made


def nystrom(**options: Any) -> nn.Module:
    from nystrom_attention import NystromAttention

    made: nn.Module = NystromAttention(**(HEADS | {"num_landmarks": 8} | options))
    return made


def taylor(**options: Any) -> nn.Module:
    from taylor_series_linear_attention import TaylorSeriesLinearAttn

    made: nn.Module = TaylorSeriesLinearAttn(**(HEADS | options))
    return made


def timm(**options: Any) -> nn.Module:
    made: nn.Module = lite_mla()(8, 8, dim=4, **options)
    return made


def transformers(name: str, config: str, layer: str, **options: Any) -> nn.Module:
    made = getattr(module(name, "configuration"), config)(
        hidden_size=MODEL, num_hidden_layers=2, **options
    )
    found: nn.Module = drawn(getattr(module(name, "modeling"), layer), made, 1).float()
    return found


LINEAR = {"layer_types": ["linear_attention"] * 2}
DELTA: dict[str, Any] = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    **LINEAR,
}

SAME: dict[str, Callable[[], nn.Module]] = {
    "linformer": linformer,
    "linformer, one head of keys": lambda: linformer(one_kv_head=True, dim_head=6),
    "linformer, values are keys": lambda: linformer(share_kv=True),
    "linear-attention-transformer": efficient,
    "linear-attention-transformer, context": lambda: efficient(receives_context=True),
    "performer, cross-attention": lambda: performer("CrossAttention"),
    "performer, bare": lambda: performer("FastAttention"),
    "performer, bare, relu": lambda: performer("FastAttention", generalized_attention=True),
    "performer, bare, no projection": lambda: performer("FastAttention", no_projection=True),
    "taylor": taylor,
    "taylor, half the features": lambda: taylor(remove_even_power_dups=True),
    "taylor, one head of keys": lambda: taylor(one_headed_kv=True),
    "taylor, rotary": lambda: taylor(rotary_emb=True),
    "taylor, all else": lambda: taylor(gate_value_heads=True, prenorm=True, shift_tokens=True),
    "taylor, no projection": lambda: taylor(combine_heads=False),
    "timm": timm,
    "timm, three scales and biases": lambda: timm(scales=(3, 5), use_bias=True, heads_ratio=2.0),
    "qwen3_next": lambda: transformers(
        "qwen3_next", "Qwen3NextConfig", "Qwen3NextGatedDeltaNet", **DELTA
    ),
    "qwen3_5": lambda: transformers(
        "qwen3_5", "Qwen3_5TextConfig", "Qwen3_5GatedDeltaNet", **DELTA
    ),
    "qwen3_5_moe": lambda: transformers(
        "qwen3_5_moe", "Qwen3_5MoeTextConfig", "Qwen3_5MoeGatedDeltaNet", **DELTA
    ),
    "olmo_hybrid": lambda: transformers(
        "olmo_hybrid",
        "OlmoHybridConfig",
        "OlmoHybridGatedDeltaNet",
        **(DELTA | {"layer_types": ["full_attention", "linear_attention"]}),
        linear_allow_neg_eigval=True,
    ),
    "kimi_linear": lambda: transformers(
        "kimi_linear",
        "KimiLinearConfig",
        "KimiLinearDeltaAttention",
        linear_num_heads=4,
        linear_head_dim=12,
        **LINEAR,
    ),
    "mamba2": lambda: transformers(
        "mamba2", "Mamba2Config", "Mamba2Mixer", num_heads=4, head_dim=16, state_size=6, n_groups=1
    ),
    "minimax": lambda: transformers(
        "minimax",
        "MiniMaxConfig",
        "MiniMaxLightningAttention",
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=12,
        block_size=16,
        **LINEAR,
    ),
}

WRONG: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "performer": (lambda: performer("SelfAttention"), "its mask leaks"),
    "performer, relu": (
        lambda: performer("SelfAttention", generalized_attention=True),
        "its mask leaks",
    ),
    "performer, no projection": (
        lambda: performer("SelfAttention", no_projection=True),
        "its mask leaks",
    ),
    "nystrom": (nystrom, "its output depends on the batch"),
    "nystrom, no convolution": (lambda: nystrom(residual=False), "depends on the batch"),
    "nystrom, many landmarks": (lambda: nystrom(num_landmarks=64), "depends on the batch"),
}

REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "efficient, causal": (lambda: efficient(causal=True), "causal=True is not supported"),
    "efficient, local": (
        lambda: efficient(n_local_attn_heads=2),
        "n_local_attn_heads=2 is not supported; supported: 0",
    ),
    "performer, causal": (
        lambda: performer("FastAttention", causal=True),
        "causal=True is not supported; supported: False",
    ),
    "performer, another kernel": (
        lambda: performer("FastAttention", generalized_attention=True, kernel_fn=nn.GELU()),
        "kernel_fn=GELU is not supported; supported: ReLU",
    ),
    "timm, another kernel": (
        lambda: timm(kernel_func=nn.SiLU),
        "kernel_func=SiLU is not supported; supported: ReLU",
    ),
    "mamba2, groups": (
        lambda: transformers(
            "mamba2", "Mamba2Config", "Mamba2Mixer", num_heads=4, head_dim=16, n_groups=2
        ),
        "n_groups=2 is not supported; supported: 1",
    ),
    "linformer, dropout": (
        lambda: linformer(dropout=0.1).train(),
        "dropout=0.1 acts on the attention in training mode",
    ),
}


def built(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return make()


@pytest.mark.parametrize("name", SAME)
def test_ours_is_the_same_within_rounding(name: str) -> None:
    layer = built(SAME[name]).eval()
    report = linattn.adopt(layer)
    assert not report.kept, str(report)
    (one,) = report.adopted
    assert one.roundings <= K
    # What theirs keeps in single precision (slopes, for one) is all that is left in float64.
    assert one.difference < 1e-6


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told_and_replaced_if_wanted(name: str) -> None:
    make, told = WRONG[name]
    layer = built(make).eval()
    kept = linattn.adopt(layer).kept[0]
    assert told in kept.reason
    assert "ours does not, and is otherwise the same: strict=False replaces it" in kept.reason
    (one,) = linattn.adopt(built(make).eval(), strict=False).adopted
    assert told in one.notes[0]
    assert one.roundings <= K


def test_what_is_inside_a_layer_that_is_kept_is_replaced() -> None:
    layer: Any = built(WRONG["performer"][0]).eval()
    report = linattn.adopt(layer)
    assert [one.paths for one in report.kept] == [("",)]
    assert [one.paths for one in report.adopted] == [("fast_attention",)]
    assert type(layer.fast_attention).__name__ == "FastAttentionStandIn"


@pytest.mark.parametrize("name", REFUSED)
def test_what_ours_has_not_is_named(name: str) -> None:
    make, told = REFUSED[name]
    (one,) = linattn.adopt(built(make)).kept
    assert told in one.reason


def test_at_least_ten_classes_are_covered() -> None:
    covered = {layer_name(built(make)) for make in SAME.values()}
    covered |= {layer_name(built(make)) for make, _ in WRONG.values()}
    # Those of flash-linear-attention: tests/linattn/test_references_fla.py.
    assert covered == {name for name in PEERS if not name.startswith("fla.")}
    assert len(covered) > 10


def test_the_versions_are_those_compared() -> None:
    for peer in PEERS.values():
        installed = "fla-core" if peer.package == "flash-linear-attention" else peer.package
        assert metadata.version(installed) == peer.versions, peer.package


@pytest.mark.parametrize("name", [*SAME, *WRONG])
def test_what_stands_in_is_scripted(name: str) -> None:
    make = SAME[name] if name in SAME else WRONG[name][0]
    layer = built(make).eval()
    peer = PEERS[layer_name(layer)]
    stand_in = peer.convert(layer).eval()
    scripted = torch.jit.script(stand_in)
    trial = peer.trials(layer)[-1]
    inputs = {
        name: value.float() if isinstance(value, Tensor) and value.is_floating_point() else value
        for name, value in trial.inputs.items()
    }
    with torch.no_grad():
        found, expected = scripted(**inputs), stand_in(**inputs)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "layers"),
    [(lambda: qwen3_next(HYBRID), 1), (lambda: minimax(HYBRID), 1), (mamba2, 2)],
    ids=["qwen3_next", "minimax", "mamba2"],
)
def test_generation_with_a_cache_goes_on_from_ours(
    make: Callable[[], nn.Module], layers: int
) -> None:
    torch.manual_seed(0)
    model: Any = make().eval()
    prompt = torch.arange(7).unsqueeze(0)
    settings: dict[str, Any] = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    expected = model.model.generate(prompt, **settings)
    report = linattn.adopt(model)
    assert len(report.adopted) == layers, str(report)
    assert torch.equal(model.model.generate(prompt, **settings), expected)


def test_packed_rows_are_refused() -> None:
    layer: Any = linattn.adopt(built(SAME["qwen3_next"]).eval()).model
    with pytest.raises(ValueError, match="cu_seq_lens_q must be None: sequences packed"):
        layer(torch.zeros(1, 4, MODEL), cu_seq_lens_q=torch.tensor([0, 2, 4]))
