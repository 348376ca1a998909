"""flash-linear-attention's layers by ours: from a model, and from options and weights alone."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import linattn
from fla_layers import GatedDeltaNet, GatedLinearAttention, LinearAttention
from linattn.adoption import Unsupported
from linattn.adoption.fla import from_state_dict
from linattn.float64 import InDouble
from linattn_export import export_module
from linattn_runtime_checks.contract.verdict import K

pytestmark = pytest.mark.references

MODEL = 32
CASES: list[tuple[type[nn.Module], dict[str, Any]]] = [
    (GatedDeltaNet, {"head_dim": 8, "num_heads": 2}),
    (GatedDeltaNet, {"head_dim": 8, "num_heads": 2, "num_v_heads": 4, "expand_v": 1.0}),
    (GatedDeltaNet, {"head_dim": 8, "num_heads": 2, "allow_neg_eigval": True, "norm_eps": 1e-3}),
    (GatedLinearAttention, {}),
    (GatedLinearAttention, {"num_heads": 2, "expand_k": 1.0, "fuse_norm": False}),
    (GatedLinearAttention, {"elementwise_affine": False}),
    (LinearAttention, {"num_heads": 4}),
    (LinearAttention, {"num_heads": 4, "num_kv_heads": 2, "feature_map": "hedgehog"}),
    (
        LinearAttention,
        {"feature_map": "t2r", "tie_feature_map_qk": True, "output_norm": "identity"},
    ),
    (LinearAttention, {"feature_map": "elu", "norm_q": True, "norm_k": True}),
    (LinearAttention, {"feature_map": "relu"}),
    (LinearAttention, {"feature_map": "identity"}),
]
each_case = pytest.mark.parametrize(("kind", "config"), CASES)


def drawn(kind: Any, config: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    layer = kind(hidden_size=MODEL, **config).eval()
    for name, parameter in layer.named_parameters():
        if name.endswith("norm.weight"):
            nn.init.normal_(parameter, 1, 0.2)
    return layer


@each_case
def test_a_layer_in_a_model_is_replaced(kind: Any, config: dict[str, Any]) -> None:
    report = linattn.adopt(nn.Sequential(drawn(kind, config)))
    assert not report.kept, str(report)
    (one,) = report.adopted
    assert one.roundings <= K
    assert one.difference < 1e-11


@each_case
@pytest.mark.parametrize("length", [1, 65])
def test_options_and_weights_are_enough(kind: Any, config: dict[str, Any], length: int) -> None:
    theirs = drawn(kind, config).double()
    config = {"hidden_size": MODEL, **config}
    layer = from_state_dict(kind.__name__, config, theirs.state_dict())
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, length, MODEL, generator=generator, dtype=torch.float64)
    with InDouble():
        expected = theirs(x)[0]
    output, cache, weights = layer(x)
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-11)
    assert cache is None
    assert weights is None
    scripted = torch.jit.script(layer)(x)[0]
    torch.testing.assert_close(scripted, output, rtol=1e-10, atol=1e-11)


def test_the_normaliser_of_theirs_counts_padding() -> None:
    layer = drawn(LinearAttention, {"feature_map": "elu", "do_feature_map_norm": True})
    kept = linattn.adopt(layer).kept[0]
    assert "its mask leaks" in kept.reason
    report = linattn.adopt(layer, strict=False)
    assert report.adopted[0].roundings <= K


@pytest.mark.parametrize(
    ("kind", "config", "told"),
    [
        (
            GatedLinearAttention,
            {"clamp_min": -1.0},
            "clamp_min=-1.0 is not supported; supported: None",
        ),
        (LinearAttention, {"feature_map": "dpfp"}, "feature_map='dpfp' is not supported"),
        (GatedDeltaNet, {"num_heads": 2, "head_dim": 8, "use_gate": False}, "use_gate=False"),
    ],
)
def test_what_ours_has_not_is_named(kind: Any, config: dict[str, Any], told: str) -> None:
    assert told in linattn.adopt(drawn(kind, config)).kept[0].reason


class NoTriton(GatedDeltaNet):
    def attend(self, x: Tensor) -> Tensor:
        raise RuntimeError("0 active drivers ([]). There should only be one.")


NoTriton.__module__, NoTriton.__qualname__ = "fla.layers.gated_deltanet", "GatedDeltaNet"
NoTriton.__name__ = "GatedDeltaNet"


def test_a_layer_that_does_not_run_here_is_kept_with_the_way_out() -> None:
    report = linattn.adopt(drawn(NoTriton, {"head_dim": 8, "num_heads": 2}))
    assert "0 active drivers" in report.kept[0].reason
    assert "from_state_dict() of linattn.adoption.fla" in report.kept[0].reason


def test_wrong_names_are_told() -> None:
    with pytest.raises(Unsupported, match="did you mean 'GatedDeltaNet'"):
        from_state_dict("GatedDeltanet", {}, {})
    with pytest.raises(Unsupported, match="did you mean 'expand_v'"):
        from_state_dict("GatedDeltaNet", {"expandv": 1}, {})
    state = drawn(GatedDeltaNet, {"head_dim": 8, "num_heads": 2}).state_dict()
    config = {"hidden_size": MODEL, "head_dim": 8, "num_heads": 2}
    del state["q_conv1d.weight"]
    with pytest.raises(Unsupported, match=r"there is no weight 'q_conv1d\.weight'"):
        from_state_dict("GatedDeltaNet", config, state)


@pytest.mark.parametrize(("kind", "config"), [CASES[0], CASES[3], CASES[6]])
def test_from_weights_alone_it_is_written_and_passes(
    kind: Any, config: dict[str, Any], tmp_path: Path
) -> None:
    state = drawn(kind, config).state_dict()
    layer = from_state_dict(kind.__name__, {"hidden_size": MODEL, **config}, state)
    inputs = {
        "symbols": {"batch": "1:4", "sequence": "1:130"},
        "inputs": {"x": {"shape": ["batch", "sequence", MODEL]}},
    }
    report = export_module(
        Output(layer),
        inputs,
        tmp_path / "out",
        formats=("onnx",),
        runtimes=("ort-cpu",),
        latency=False,
        quiet=True,
    )
    assert report.exit_code == 0, report.verdict


class Output(nn.Module):
    """The first of the three things that a layer returns; the others are None."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layer(x)[0]
        return output
