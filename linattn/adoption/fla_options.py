"""Options of layers of flash-linear-attention, by their names and with their defaults."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDeltaNet:
    """Options of the layer of that name."""

    hidden_size: int = 2048
    expand_v: float = 2.0
    head_dim: int = 256
    num_heads: int = 6
    num_v_heads: int | None = None
    mode: str = "chunk"
    use_gate: bool = True
    use_short_conv: bool = True
    allow_neg_eigval: bool = False
    conv_size: int = 4
    conv_bias: bool = False
    layer_idx: int | None = None
    norm_eps: float = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedLinearAttention:
    """Options of the layer of that name."""

    mode: str = "chunk"
    hidden_size: int = 1024
    expand_k: float = 0.5
    expand_v: float = 1.0
    num_heads: int = 4
    num_kv_heads: int | None = None
    feature_map: str | None = None
    use_short_conv: bool = False
    conv_size: int = 4
    conv_bias: bool = False
    use_output_gate: bool = True
    gate_fn: str = "swish"
    elementwise_affine: bool = True
    norm_eps: float = 1e-5
    gate_logit_normalizer: int = 16
    gate_low_rank_dim: int = 16
    clamp_min: float | None = None
    fuse_norm: bool = True
    layer_idx: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearAttention:
    """Options of the layer of that name."""

    mode: str = "chunk"
    hidden_size: int = 1024
    expand_k: float = 1.0
    expand_v: float = 1.0
    num_heads: int = 8
    num_kv_heads: int | None = None
    feature_map: str = "elementwise_product"
    tie_feature_map_qk: bool = False
    output_norm: str = "rmsnorm"
    norm_q: bool = False
    norm_k: bool = False
    do_feature_map_norm: bool = False
    elementwise_affine: bool = True
    norm_eps: float = 1e-5
    layer_idx: int | None = None
