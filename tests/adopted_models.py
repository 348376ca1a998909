"""Models of public packages: small, with random or trained weights, and what they take."""

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from timm_layers import lite_mla
from transformers_layers import module

VOCABULARY, MODEL, LONGEST = 20, 32, 64
Spec = dict[str, Any]


def spec(*, tokens: bool = False, mask: str = "", longest: int = LONGEST) -> Spec:
    """Of one input ``x``, tokens or hidden states, and a mask."""
    hidden: Spec = {"shape": ["batch", "sequence", MODEL]}
    if tokens:
        hidden = {"shape": ["batch", "sequence"], "dtype": "int64", "range": [0, VOCABULARY - 1]}
    inputs = {"x": hidden}
    if mask:
        inputs[mask] = {"shape": ["batch", "sequence"], "kind": "mask"}
    return {"symbols": {"batch": "1:4", "sequence": f"1:{longest}"}, "inputs": inputs}


class Tokens(nn.Module):
    """A language model of transformers: logits of tokens, without a cache.

    Masks are given, since the code that makes them fixes the batch at what it was captured with.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        none = {"full_attention": None, "linear_attention": None}
        logits: Tensor = self.model(input_ids=x, attention_mask=none, use_cache=False).logits
        return logits


class InputMask(nn.Module):
    """A model whose padding mask is called ``input_mask``."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, input_mask: Tensor) -> Tensor:
        output: Tensor = self.model(x, input_mask=input_mask)
        return output


class Mask(nn.Module):
    """A model whose padding mask is called ``mask``."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        output: Tensor = self.model(x, mask=mask)
        return output


def linformer() -> nn.Module:
    from linformer import Linformer

    made: nn.Module = Linformer(MODEL, LONGEST, 1, k=8, heads=4)
    return made


def linear_attention_transformer() -> nn.Module:
    from linear_attention_transformer import LinearAttentionTransformerLM

    # Its axial positions, the default, exclude the longest sequence from an export, ours or not.
    return InputMask(
        LinearAttentionTransformerLM(
            num_tokens=VOCABULARY,
            dim=MODEL,
            depth=1,
            max_seq_len=LONGEST,
            heads=4,
            dim_head=8,
            use_axial_pos_emb=False,
        )
    )


def performer() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # distutils
        from performer_pytorch import PerformerLM

    return Mask(
        PerformerLM(
            num_tokens=VOCABULARY, max_seq_len=LONGEST, dim=MODEL, depth=1, heads=4, dim_head=8
        )
    )


def nystrom() -> nn.Module:
    from nystrom_attention import Nystromformer

    return Mask(Nystromformer(dim=MODEL, depth=1, dim_head=8, heads=4, num_landmarks=8))


def taylor_series() -> nn.Module:
    from taylor_series_linear_attention import TaylorSeriesLinearAttn

    return Mask(TaylorSeriesLinearAttn(dim=MODEL, dim_head=8, heads=4))


def timm() -> nn.Module:
    made: nn.Module = lite_mla()(8, 8, dim=4)
    return made


LINEAR = ("linear_attention", "linear_attention")
HYBRID = ("linear_attention", "full_attention")


def _config(name: str, kind: str, layers: tuple[str, ...], **more: Any) -> Any:
    return getattr(module(name, "configuration"), kind)(
        hidden_size=MODEL,
        num_hidden_layers=len(layers),
        vocab_size=VOCABULARY,
        intermediate_size=48,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=8,
        layer_types=list(layers),
        **more,
    )


def qwen3_next(layers: tuple[str, ...] = LINEAR[:1]) -> nn.Module:
    config = _config(
        "qwen3_next",
        "Qwen3NextConfig",
        layers,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=8,
        linear_value_head_dim=12,
        num_experts=0,
    )
    return Tokens(module("qwen3_next", "modeling").Qwen3NextForCausalLM(config))


def minimax(layers: tuple[str, ...] = LINEAR) -> nn.Module:
    config = _config(
        "minimax",
        "MiniMaxConfig",
        layers,
        block_size=16,
        num_local_experts=1,
        num_experts_per_tok=1,
    )
    model = module("minimax", "modeling").MiniMaxForCausalLM(config)
    for layer in model.model.layers:
        # Its experts are multiplied by an operator that has no float64, and are not attention.
        layer.mlp = nn.Sequential(nn.Linear(MODEL, 48), nn.SiLU(), nn.Linear(48, MODEL))
    return Tokens(model)


def mamba2() -> nn.Module:
    config = module("mamba2", "configuration").Mamba2Config(
        hidden_size=MODEL,
        num_hidden_layers=2,
        vocab_size=VOCABULARY,
        num_heads=4,
        head_dim=16,
        state_size=6,
        n_groups=1,
    )
    return Tokens(module("mamba2", "modeling").Mamba2ForCausalLM(config))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """``refused``: why the original is not written as ONNX, empty where it is.

    ``strict`` is that of adopt(): off where the original itself is wrong.
    """

    make: Callable[[], nn.Module]
    inputs: Spec
    refused: str
    strict: bool = True


IMAGES: Spec = {
    "symbols": {"batch": "1:4", "sequence": "1:64"},
    "inputs": {"x": {"shape": ["batch", 8, 4, "sequence"]}},
}

CASES = {
    # The longest sequence takes another branch.
    "linformer": Case(make=linformer, inputs=spec(), refused='or declare sequence = "1:63"'),
    # The mask is written into a view of the keys.
    "linear-attention-transformer": Case(
        make=linear_attention_transformer,
        inputs=spec(tokens=True, mask="input_mask"),
        refused="Failed to decompose",
    ),
    "performer-pytorch": Case(
        make=performer,
        inputs=spec(tokens=True, mask="mask"),
        refused="Failed to decompose",
        strict=False,
    ),
    # Whether there is padding, and how much, is asked in Python.
    "nystrom-attention": Case(
        make=nystrom, inputs=spec(mask="mask"), refused="not a multiple of 8", strict=False
    ),
    "taylor-series-linear-attention": Case(
        make=taylor_series, inputs=spec(mask="mask"), refused=""
    ),
    "timm": Case(make=timm, inputs=IMAGES, refused=""),
    # Both go through chunks in a Python loop.
    "transformers Qwen3-Next": Case(
        make=qwen3_next,
        inputs=spec(tokens=True, longest=130),
        refused="at sequence = 1 the module computes something else",
    ),
    "transformers MiniMax": Case(
        make=minimax, inputs=spec(tokens=True, longest=200), refused='declare sequence = "17:32"'
    ),
}


def drawn(name: str, *, trained: bool) -> nn.Module:
    """The model in eval mode, after some steps towards reversing its input, or none."""
    torch.manual_seed(0)
    model = CASES[name].make()
    if trained:
        _train(model, name)
    return copy.deepcopy(model).eval()


def sample(name: str, batch: int, length: int) -> dict[str, Tensor]:
    """Inputs; the last sequence has padding on the right where there is a mask."""
    generator = torch.Generator().manual_seed(length)
    made: dict[str, Tensor] = {}
    for argument, table in CASES[name].inputs["inputs"].items():
        sizes = {"batch": batch, "sequence": length}
        shape = [sizes.get(axis, axis) for axis in table["shape"]]
        if table.get("kind") == "mask":
            real = torch.full((batch, 1), length)
            real[-1] = max(1, length - length // 3)
            made[argument] = torch.arange(length) < real
        elif table.get("dtype") == "int64":
            made[argument] = torch.randint(VOCABULARY, shape, generator=generator)
        else:
            made[argument] = torch.randn(*shape, generator=generator)
    return made


def _train(model: nn.Module, name: str) -> None:
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    first = last = 0.0
    for _ in range(40):
        inputs = sample(name, 4, 24)
        output = model(**inputs)
        x = inputs["x"]
        if x.dtype == torch.int64:
            loss = nn.functional.cross_entropy(output.flatten(0, 1), x.flip(1).flatten())
        else:
            loss = nn.functional.mse_loss(output, x.flip(-1))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        last = loss.item()
        first = first or last
    assert last < first, f"{name} did not learn: {first} to {last}"
