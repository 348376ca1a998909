"""Layers of other packages, the weights of ours that make it compute the same, and their export.

``linformer`` is Linformer. ``linear-attention-transformer`` is efficient attention, which it
divides by the root of the head's width; ``performer-pytorch`` without its projection is efficient
attention, which it divides by a sum of weights that is 1. ``taylor-series-linear-attention`` (the
second order of exp, where ours is the first order on unit vectors) has no counterpart here.
``performer-pytorch`` with its projection and ``nystrom-attention`` are not timed yet.
"""

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.speed.layers import Sizes, make_layer
from linattn_export.subjects.subject import Subject

Weights = dict[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """``build`` makes the package's layer; ``weights`` are its parameters as ours names them."""

    package: str
    imported: str
    method: str
    build: Callable[[Sizes], nn.Module]
    weights: Callable[[Any], Weights]

    @property
    def version(self) -> str | None:
        """The installed version, None without one."""
        return metadata.version(self.package) if find_spec(self.imported) is not None else None

    def pair(self, sizes: Sizes) -> tuple[nn.Module, Subject]:
        """Their layer, and ours with its weights."""
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            theirs = self.build(sizes).eval()
        ours = make_layer(self.method, sizes)
        ours.module.load_state_dict(self.weights(theirs))
        return theirs, ours


def export_peer(theirs: nn.Module, path: Path, sizes: Sizes, length: int | None) -> None:
    """Write their layer as a user of torch.onnx would: dynamic, or for one length.

    Raises:
        Exception: whatever torch.onnx raises.
    """
    dynamic: dict[int, Any] = {0: torch.export.Dim("batch", min=1, max=64)}
    if length is None:
        dynamic[1] = torch.export.Dim("sequence", min=2, max=sizes.max_length - 1)
    x = torch.randn(3, length or 24, sizes.d_model)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.export.export(theirs, (x,), dynamic_shapes=(dynamic,), strict=False)
        written = torch.onnx.export(
            program,
            (),
            input_names=["hidden_states"],
            output_names=["output"],
            opset_version=18,
            dynamo=True,
            external_data=False,
            optimize=True,
            verbose=False,
        )
    assert written is not None
    written.save(path)


def _projections(theirs: Any, scale: float = 1.0) -> Weights:
    packed = torch.cat([x.weight for x in (theirs.to_q, theirs.to_k, theirs.to_v)])
    return {
        "in_proj_weight": packed,
        "in_proj_bias": torch.zeros(len(packed)),
        "out_proj.weight": theirs.to_out.weight * scale,
        "out_proj.bias": theirs.to_out.bias,
    }


def _linformer(sizes: Sizes) -> nn.Module:
    from linformer import LinformerSelfAttention

    made: nn.Module = LinformerSelfAttention(
        sizes.d_model, sizes.max_length, k=sizes.rank, heads=sizes.heads
    )
    return made


def _linformer_weights(theirs: Any) -> Weights:
    return {
        **_projections(theirs),
        "attention.key_projection": theirs.proj_k.T,
        "attention.value_projection": theirs.proj_v.T,
    }


def _efficient(sizes: Sizes) -> nn.Module:
    from linear_attention_transformer.linear_attention_transformer import SelfAttention

    made: nn.Module = SelfAttention(sizes.d_model, sizes.heads)
    return made


def _efficient_weights(theirs: Any) -> Weights:
    return _projections(theirs, scale=theirs.d_heads**-0.5)


def _performer(sizes: Sizes) -> nn.Module:
    # Not its SelfAttention, whose forward takes any number of arguments: torch.export refuses it.
    module: Any = import_module("performer_pytorch.performer_pytorch")
    made: nn.Module = module.Attention(
        sizes.d_model, heads=sizes.heads, dim_head=sizes.width, no_projection=True
    )
    return made


PEERS = (
    Peer(
        package="linformer",
        imported="linformer",
        method="linformer",
        build=_linformer,
        weights=_linformer_weights,
    ),
    Peer(
        package="linear-attention-transformer",
        imported="linear_attention_transformer",
        method="efficient",
        build=_efficient,
        weights=_efficient_weights,
    ),
    Peer(
        package="performer-pytorch",
        imported="performer_pytorch",
        method="efficient",
        build=_performer,
        weights=_projections,
    ),
)
