"""The calling convention of ``torch.nn.MultiheadAttention`` around our layer.

Kept apart because its mask means the opposite: torch's ``key_padding_mask`` is True for padding,
``linattn``'s ``mask`` is True for real tokens.
"""

from typing import Any, Optional, Tuple  # noqa: UP035  (TorchScript reads these annotations)

import torch
from torch import Tensor, nn

from linattn.multihead import MultiHeadAttention


class TorchSelfAttention(nn.Module):
    """Stands in for ``torch.nn.MultiheadAttention(batch_first=True)`` used as self-attention.

    It can take the place of ``self_attn`` in ``torch.nn.TransformerEncoderLayer``, and it loads
    the state dict of the module that it replaces when that one is loaded into ``layer``.
    In ``torch.nn.TransformerEncoder``, turn nested tensors off (``enable_nested_tensor=False``):
    it decides on them when it is built, and then expects torch's own attention in its layers.

    Args:
        layer: the attention to call.
    """

    batch_first: bool
    _qkv_same_embed_dim: bool
    in_proj_bias: Optional[Tensor]

    def __init__(self, layer: MultiHeadAttention) -> None:
        super().__init__()
        self.layer = layer
        self.batch_first = True
        # Read by nn.TransformerEncoderLayer: False keeps it off its fused softmax kernel, which
        # would ignore our method.
        self._qkv_same_embed_dim = False
        self.in_proj_bias = None  # read there too, before the flag above
        self.num_heads: int = layer.heads
        self.embed_dim: int = layer.d_model

    @staticmethod
    def from_torch(
        original: nn.MultiheadAttention, *, method: str, **options: Any
    ) -> "TorchSelfAttention":
        """Our layer with the weights of ``original``.

        Raises:
            ValueError: ``original`` is not batch_first, or has widths or extra biases that
                self-attention with one width does not have.
        """
        if not original.batch_first:
            raise ValueError("only batch_first=True is supported; build the original with it")
        if original.in_proj_weight is None or original.bias_k is not None or original.add_zero_attn:
            raise ValueError(
                "kdim, vdim, add_bias_kv and add_zero_attn are not supported; "
                "the original must be plain self-attention"
            )
        bias = original.in_proj_bias is not None
        layer = MultiHeadAttention(
            original.embed_dim, original.num_heads, method=method, bias=bias, **options
        )
        layer.to(original.in_proj_weight)
        own = layer.state_dict()
        own.update(original.state_dict())
        layer.load_state_dict(own)
        layer.train(original.training)
        return TorchSelfAttention(layer)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Optional[Tensor] = None,
        need_weights: bool = False,
        attn_mask: Optional[Tensor] = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> Tuple[Tensor, Optional[Tensor]]:  # noqa: UP006
        """Self-attention; arguments as in ``torch.nn.MultiheadAttention``.

        Args:
            query: ``[B, N, M]``; ``key`` and ``value`` must be the same tensor.
            key: the same as ``query``.
            value: the same as ``query``.
            key_padding_mask: ``[B, N]``, torch's meaning: True (or -inf) = padding.
            need_weights: must be False: linear attention has no weight matrix.
            attn_mask: must be None.
            average_attn_weights: ignored, as torch does without weights.
            is_causal: must be False.

        Returns:
            ``([B, N, M], None)``.

        Raises:
            ValueError: something was asked for that these methods do not have.
        """
        if need_weights:
            raise ValueError("need_weights must be False: linear attention has no weight matrix")
        if attn_mask is not None or is_causal:
            raise ValueError("attn_mask must be None and is_causal False: no method here is causal")
        if query.shape != key.shape or key.shape != value.shape:
            raise ValueError(
                "query, key and value must be one tensor (self-attention), "
                f"got {query.shape}, {key.shape} and {value.shape}"
            )
        mask: Optional[Tensor] = None
        if key_padding_mask is not None:
            if key_padding_mask.dtype == torch.bool:
                mask = torch.logical_not(key_padding_mask)
            else:
                mask = key_padding_mask == 0  # TransformerEncoderLayer turns True into -inf
        return self.layer(query, mask), None
